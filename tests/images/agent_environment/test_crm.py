"""The CRM's own rules: closing deals, forecast, stillness, duplicates and merges, follow-ups, what reaches other servers."""

from __future__ import annotations

from typing import Any

import pytest
from _server.store import Row
from server.registry import Context
from server.store import ToolError

ME, LEO = "dana@harbor.example", "leo@harbor.example"


@pytest.fixture
def office(ctx: Context) -> Context:
    """Two look-alike companies, three people, four stages and three open deals."""
    db = ctx.db
    for handle, name, email in (("dana", "Dana Reyes", ME), ("leo", "Leo Marsh", LEO)):
        db.insert("slack.users", handle=handle, name=name, email=email)
    stages = (("New", 0.1, "open"), ("Proposal", 0.5, "open"), ("Won", 1.0, "won"), ("Lost", 0.0, "lost"))
    for position, (name, probability, outcome) in enumerate(stages, 1):
        db.insert("crm.stages", name=name, position=position, probability=probability, outcome=outcome)
    db.insert("crm.companies", name="Nordfrische Logistik GmbH", domain="nordfrische.example", city="Bremen", owner=ME)
    db.insert("crm.companies", name="Nordfrisch Logistics BV", domain="nordfrisch.example", city="Rotterdam", owner=LEO)
    db.insert("crm.contacts", company_id="cmp_1", name="Maren Claussen", email="maren@nordfrische.example", status="prospect", owner=ME)
    db.insert("crm.contacts", company_id="cmp_2", name="Marijn Claassen", email="marijn@nordfrisch.example", owner=LEO, last_contacted_at="2026-03-02T10:00:00")
    db.insert("crm.contacts", name="Lou Berg", email="lou@bergfood.example", owner=ME)
    old, new = "2026-01-05T09:00:00", "2026-03-06T09:00:00"
    _deal(ctx, "Nordfrische rollout", "cmp_1", "con_1", "stg_2", 80_000.10, ME, "2026-03-27", old)
    _deal(ctx, "Nordfrisch rollout", "cmp_2", "con_2", "stg_1", 30_000.20, LEO, "2026-04-10", new)
    _deal(ctx, "Nordfrische spare parts", "cmp_1", "con_1", "stg_1", 999.99, ME, None, old)
    return ctx


def _deal(ctx: Context, name: str, company: str, contact: str, stage: str, amount: float, owner: str, close: str | None, at: str) -> None:
    ctx.db.insert(
        "crm.deals", name=name, company_id=company, contact_id=contact, stage_id=stage, amount=amount, owner=owner, expected_close=close, created_at=at,
        updated_at=at,
    )  # fmt: skip


def _refused(call: Any, ctx: Context, tool: str, /, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(ctx, tool, **args)
    return caught.value


def test_winning_a_deal_makes_a_customer_once(office: Context, call: Any) -> None:
    won = call(office, "crm_move_deal_stage", deal_id="deal_1", stage="won")
    assert (won["deal"]["status"], won["deal"]["stage_id"], won["from_stage"]["name"]) == ("won", "stg_3", "Proposal")
    assert won["customer_created"] is True
    assert (won["customer"]["name"], won["customer"]["email"]) == ("Nordfrische Logistik GmbH", "maren@nordfrische.example")
    assert won["contact"]["status"] == "customer"
    again = call(office, "crm_move_deal_stage", deal_id="Nordfrische spare parts", stage="Won")
    assert again["customer_created"] is False
    assert office.db.count("accounting.customers") == 1


def test_losing_needs_a_reason_and_reopening_forgets_it(office: Context, call: Any) -> None:
    error = _refused(call, office, "crm_move_deal_stage", deal_id="deal_2", stage="Lost")
    assert error.type == "invalid"
    assert office.db.get("crm.deals", "deal_2")["status"] == "open"
    lost = call(office, "crm_move_deal_stage", deal_id="deal_2", stage="Lost", lost_reason="No budget")["deal"]
    assert (lost["status"], lost["lost_reason"]) == ("lost", "No budget")
    open_again = call(office, "crm_move_deal_stage", deal_id="deal_2", stage="New")["deal"]
    assert (open_again["status"], open_again["lost_reason"]) == ("open", "")
    assert _refused(call, office, "crm_move_deal_stage", deal_id="deal_2", stage="Proposal", lost_reason="x").type == "invalid"


def test_a_deal_is_not_born_closed(office: Context, call: Any) -> None:
    assert _refused(call, office, "crm_create_deal", name="Quick win", company_id="nordfrisch.example", amount=5, stage="Won").type == "invalid"
    made = call(office, "crm_create_deal", name="Second hall", company_id="Nordfrisch Logistics BV", amount=5)["deal"]
    assert (made["stage_id"], made["owner"], made["company_id"]) == ("stg_1", ME, "cmp_2")


def test_near_matches(office: Context, call: Any) -> None:
    error = _refused(call, office, "crm_get_company", company_id="Nordfrische")
    assert error.type == "not_found"
    assert "cmp_1 (Nordfrische Logistik GmbH)" in error.hint
    assert "Proposal" in _refused(call, office, "crm_move_deal_stage", deal_id="deal_1", stage="Proposals").hint
    assert "Leo Marsh <leo@harbor.example>" in _refused(call, office, "crm_update_deal", deal_id="deal_1", owner="Leo Marsch").hint


def test_forecast_weighs_by_stage_and_month(office: Context, call: Any) -> None:
    answer = call(office, "crm_forecast", months=2)
    assert [m["month"] for m in answer["months"]] == ["2026-03", "2026-04"]
    assert answer["months"][0]["weighted"] == {"USD": 40_000.05}
    assert answer["months"][1] == {"month": "2026-04", "deals": 1, "amount": {"USD": 30_000.2}, "weighted": {"USD": 3_000.02}}
    assert answer["undated"]["deals"] == 1
    assert answer["total"]["amount"] == {"USD": 111_000.29}
    assert call(office, "crm_forecast", from_month="2026-04", months=1)["earlier"]["amount"] == {"USD": 80_000.1}


def test_pipeline_has_every_stage_in_order(office: Context, call: Any) -> None:
    answer = call(office, "crm_pipeline_summary", owner="me")
    assert [(s["name"], s["deals"]) for s in answer["stages"]] == [("New", 1), ("Proposal", 1), ("Won", 0), ("Lost", 0)]
    assert answer["open"]["weighted"] == {"USD": 40_100.05}


def test_stale_deals_count_activities_as_touches(office: Context, call: Any) -> None:
    assert [d["id"] for d in call(office, "crm_stale_deals", days=30)["deals"]] == ["deal_1", "deal_3"]
    call(office, "crm_log_activity", type="note", subject="Still alive", deal_id="deal_1", occurred_at="2026-03-01T12:00:00")
    left = call(office, "crm_stale_deals", days=30)["deals"]
    assert [(d["id"], d["days_since"]) for d in left] == [("deal_3", 62)]


def test_only_talking_touches_a_contact_and_never_backwards(office: Context, call: Any) -> None:
    note = call(office, "crm_log_activity", type="note", subject="Saw their booth", contact_id="con_2")
    assert note["contact"] is None
    assert note["activity"]["company_id"] == "cmp_2"
    earlier = call(office, "crm_log_activity", type="call", subject="Old call", contact_id="con_2", occurred_at="2026-02-01T10:00:00")
    assert earlier["contact"]["last_contacted_at"] == "2026-03-02T10:00:00-05:00"
    now = call(office, "crm_log_activity", type="call", subject="New call", deal_id="deal_2")
    assert now["contact"]["last_contacted_at"] == "2026-03-09T08:30:00-04:00"
    assert _refused(call, office, "crm_log_activity", type="call", subject="x", contact_id="con_2", occurred_at="2026-03-10T10:00:00").type == "invalid"
    assert _refused(call, office, "crm_log_activity", type="call", subject="x").type == "invalid"


def test_follow_up_reaches_the_calendar_and_is_completed_once(office: Context, call: Any) -> None:
    office.db.insert("calendar.calendars", name="Dana", owner=ME, is_primary=True)
    made = call(office, "crm_schedule_follow_up", subject="Call Maren", type="call", due_at="2026-03-11T14:00:00", deal_id="deal_1", add_to_calendar=True)
    assert (made["event"]["start"], made["event"]["end"]) == ("2026-03-11T14:00:00-04:00", "2026-03-11T14:30:00-04:00")
    listed = call(office, "crm_list_activities", is_done=False, owner="Dana Reyes")
    assert [a["id"] for a in listed["activities"]] == [made["activity"]["id"]]
    done = call(office, "crm_complete_activity", activity_id=made["activity"]["id"], outcome="Signed")
    assert done["activity"]["body"] == "Signed"
    assert done["contact"]["last_contacted_at"] == "2026-03-09T08:30:00-04:00"
    assert _refused(call, office, "crm_complete_activity", activity_id=made["activity"]["id"]).type == "conflict"


def test_duplicates_are_shown_with_reasons_and_merged(office: Context, call: Any) -> None:
    assert call(office, "crm_find_duplicates", kind="companies")["pairs"][0]["reasons"] == ["similar name"]
    twin = office.db.insert("crm.contacts", company_id="cmp_1", name="Maren Claussen", email="m.claussen@mail.example", phone="555-0101", owner=ME)
    call(office, "crm_log_activity", type="meeting", subject="Fair", contact_id=twin["id"], occurred_at="2026-03-05T10:00:00")
    pairs = call(office, "crm_find_duplicates", kind="contacts")["pairs"]
    assert [([r["id"] for r in p["rows"]], p["reasons"]) for p in pairs] == [(["con_1", twin["id"]], ["same name"])]
    merged = call(office, "crm_merge_contacts", keep_id="con_1", merge_id=twin["id"])
    assert (merged["contact"]["email"], merged["contact"]["phone"]) == ("maren@nordfrische.example", "555-0101")
    assert merged["contact"]["last_contacted_at"] == "2026-03-05T10:00:00-05:00"
    assert merged["moved"] == {"crm.deals": 0, "crm.activities": 1}
    assert office.db.count("crm.contacts") == 3


def test_merging_companies_takes_everything_along(office: Context, call: Any) -> None:
    merged = call(office, "crm_merge_companies", keep_id="cmp_1", merge_id="cmp_2")
    assert merged["moved"] == {"crm.contacts": 1, "crm.deals": 1, "crm.activities": 0}
    assert {d["company_id"] for d in office.db.rows("crm.deals")} == {"cmp_1"}
    assert office.db.count("crm.companies") == 1
    assert _refused(call, office, "crm_merge_companies", keep_id="cmp_1", merge_id="cmp_1").type == "invalid"


def test_converting_a_lead(office: Context, call: Any) -> None:
    assert _refused(call, office, "crm_convert_lead", contact_id="lou@bergfood.example").type == "invalid"
    made = call(office, "crm_convert_lead", contact_id="lou@bergfood.example", company_name="Berg Food", deal_name="Berg trial", amount=1200)
    assert (made["company"]["domain"], made["contact"]["status"], made["contact"]["company_id"]) == ("bergfood.example", "prospect", "cmp_3")
    assert (made["deal"]["stage_id"], made["deal"]["contact_id"], made["deal"]["amount"]) == ("stg_1", "con_3", 1200)
    assert _refused(call, office, "crm_convert_lead", contact_id="con_1").type == "conflict"


def test_reassigning_leaves_closed_deals_and_mails_the_new_owner(office: Context, call: Any) -> None:
    call(office, "crm_move_deal_stage", deal_id="deal_3", stage="Lost", lost_reason="Duplicate")
    answer = call(office, "crm_reassign_owner", from_owner="me", to_owner="@leo")
    assert {kind: [r["id"] for r in rows] for kind, rows in answer["changed"].items()} == {
        "companies": ["cmp_1"], "contacts": ["con_1", "con_3"], "deals": ["deal_1"], "activities": [],
    }  # fmt: skip
    assert answer["message"]["to"] == [LEO]
    assert "Nordfrische rollout" in answer["message"]["body"]
    assert office.db.get("crm.deals", "deal_3")["owner"] == ME
    back = call(office, "crm_reassign_owner", from_owner=LEO, to_owner="me", kinds=["deals"])
    assert back["message"] is None
    assert [r["id"] for r in back["changed"]["deals"]] == ["deal_1", "deal_2"]


def test_deleting_what_is_used_is_refused(office: Context, call: Any) -> None:
    error = _refused(call, office, "crm_delete_contact", contact_id="con_1")
    assert error.type == "conflict"
    assert "crm.deals: deal_1, deal_3" in error.message
    call(office, "crm_log_activity", type="note", subject="x", deal_id="deal_3")
    assert call(office, "crm_delete_deal", deal_id="deal_3")["activities_deleted"] == 1
    call(office, "crm_move_deal_stage", deal_id="deal_1", stage="Won")
    assert _refused(call, office, "crm_delete_deal", deal_id="deal_1").type == "conflict"


def test_a_mail_to_a_contact_is_logged_and_in_the_timeline(office: Context, call: Any) -> None:
    sent = call(office, "crm_email_contact", contact_id="Maren Claussen", subject="Offer", body="As promised.", deal_id="deal_1")
    assert (sent["message"]["folder"], sent["message"]["to"]) == ("sent", ["maren@nordfrische.example"])
    assert sent["activity"]["deal_id"] == "deal_1"
    call(office, "crm_log_activity", type="call", subject="First call", contact_id="con_1", occurred_at="2026-02-02T10:00:00")
    entries = call(office, "crm_timeline", company_id="cmp_1")["entries"]
    assert [(e["kind"], e["at"][:10]) for e in entries] == [("email", "2026-03-09"), ("activity", "2026-03-09"), ("activity", "2026-02-02")]
    assert call(office, "crm_timeline", contact_id="con_2")["entries"] == []


def test_filters_and_paging(office: Context, call: Any) -> None:
    first = call(office, "crm_list_deals", limit=2)
    assert [d["id"] for d in first["deals"]] == ["deal_1", "deal_2"]
    second = call(office, "crm_list_deals", limit=2, cursor=first["next_cursor"])
    assert ([d["id"] for d in second["deals"]], second["next_cursor"], second["total"]) == (["deal_3"], None, 3)
    assert _refused(call, office, "crm_list_deals", cursor="9").type == "bad_cursor"
    assert [d["id"] for d in call(office, "crm_list_deals", owner="me", min_amount=1000)["deals"]] == ["deal_1"]
    assert [c["id"] for c in call(office, "crm_search_contacts", not_contacted_since="2026-03-01T00:00:00")["contacts"]] == ["con_3", "con_1"]
    hits: list[Row] = call(office, "crm_search", query="nordfrisch rollout")["hits"]
    assert [(h["table"], h["row"]["id"]) for h in hits] == [("deals", "deal_1"), ("deals", "deal_2")]


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("crm_create_deal", {"name": "x", "company_id": "cmp_1", "amount": 1, "contact_id": ""}),
        ("crm_update_deal", {"deal_id": "deal_1", "owner": ""}),
        ("crm_list_deals", {"company_id": ""}),
        ("crm_log_activity", {"type": "note", "subject": "x", "deal_id": "deal_1", "contact_id": ""}),
    ],
)
def test_an_empty_text_names_nobody(office: Context, call: Any, tool: str, args: Row) -> None:
    assert _refused(call, office, tool, **args).type == "not_found"
