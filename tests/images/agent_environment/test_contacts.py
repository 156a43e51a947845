"""The address book's own rules: one address one person, duplicates, merging, groups, vCards, people from mails."""

from __future__ import annotations

from typing import Any

import pytest
from server.registry import Context
from server.store import ToolError


@pytest.fixture
def office(ctx: Context) -> Context:
    """Two Jos, one person twice, two groups, a mail and a CRM."""
    db = ctx.db
    for name, email, more in (
        ("Jo Sandoval", "jo@quaymark.example", {"phone": "617-555-0101", "company": "Quaymark", "birthday": "1990-03-15", "notes": "Cranes."}),
        ("Jo Sandford", "jo.sandford@pier.example", {"company": "Pier Nine", "birthday": "1988-02-29"}),
        ("Sandoval Jo", "sandoval.jo@mail.example", {"phone": "+1 (617) 555-0101", "title": "Foreman", "notes": "Calls back.", "is_starred": True}),
        ("Mira Oduya", "mira@quaymark.example", {"company": "Quaymark", "birthday": "1979-03-08"}),
    ):
        db.insert("contacts.people", name=name, email=email, **more)
    for name in ("Board", "Christmas cards"):
        db.insert("contacts.groups", name=name)
    for group, person in ((1, 1), (2, 3), (2, 1)):
        db.insert("contacts.memberships", group_id=f"grp_{group}", person_id=f"per_{person}")
    db.insert("crm.companies", name="Saltline AG", domain="saltline.example", owner="dana@harbor.example")
    db.insert(
        "crm.contacts", company_id="cmp_1", name="Ute Brandt", email="ute@saltline.example", phone="030-555-0199", title="Buyer", owner="dana@harbor.example"
    )
    db.insert("email.threads", subject="Winch")
    db.insert(
        "email.messages", thread_id="thr_1", from_address="ute@saltline.example", from_name="Ute Brandt", to=["dana@harbor.example"],
        subject="Winch", body="?", sent_at="2026-03-05T09:00:00", folder="inbox",
    )  # fmt: skip
    db.insert("filesystem.entries", path="/contacts", kind="directory", modified_at=ctx.now_text)
    return ctx


def _refused(call: Any, ctx: Context, name: str, /, **args: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call(ctx, name, **args)
    return caught.value


def test_search_filters_and_pages(office: Context, call: Any) -> None:
    first = call(office, "contacts_search_people", query="jo", limit=2)
    assert [p["name"] for p in first["people"]] == ["Jo Sandford", "Jo Sandoval"]
    assert (first["total"], first["next_cursor"]) == (3, "2")
    assert [p["id"] for p in call(office, "contacts_search_people", query="jo", limit=2, cursor="2")["people"]] == ["per_3"]
    assert [p["id"] for p in call(office, "contacts_search_people", query="", company="quay")["people"]] == ["per_1", "per_4"]
    assert [p["id"] for p in call(office, "contacts_search_people", query="", group="christmas cards", starred_only=True)["people"]] == ["per_3"]
    assert _refused(call, office, "contacts_search_people", query="", cursor="5").type == "bad_cursor"


def test_near_names_for_unknown_people_and_groups(office: Context, call: Any) -> None:
    refused = _refused(call, office, "contacts_get_person", person_ref="Jo Sandovall")
    assert (refused.type, "per_1 (Jo Sandoval)" in refused.hint) == ("not_found", True)
    assert "grp_1 (Board)" in _refused(call, office, "contacts_get_group", group="Bord").hint


def test_an_address_belongs_to_one_person(office: Context, call: Any) -> None:
    assert _refused(call, office, "contacts_create_person", name="Jo", email="JO@quaymark.example").type == "conflict"
    refused = _refused(call, office, "contacts_update_person", person_ref="per_2", email="mira@quaymark.example")
    assert (refused.type, "Mira Oduya" in refused.message) == ("conflict", True)
    assert _refused(call, office, "contacts_create_person", name="X", email="x@y.example", birthday="2030-01-01").type == "invalid"


def test_update_leaves_the_rest_and_null_clears(office: Context, call: Any) -> None:
    person = call(office, "contacts_update_person", person_ref="jo@quaymark.example", title="Director")["person"]
    assert (person["title"], person["birthday"], person["groups"]) == ("Director", "1990-03-15", ["Board", "Christmas cards"])
    assert call(office, "contacts_update_person", person_ref="per_1", birthday=None)["person"]["birthday"] is None
    noted = call(office, "contacts_add_note", person_ref="per_1", note="Prefers mail.")["person"]
    assert noted["notes"] == "Cranes.\n2026-03-09: Prefers mail."


def test_duplicates_are_named_with_reasons(office: Context, call: Any) -> None:
    found = call(office, "contacts_find_duplicates")["duplicates"]
    assert [([p["id"] for p in d["people"]], d["reasons"]) for d in found] == [(["per_1", "per_3"], ["same name", "same phone"])]
    assert call(office, "contacts_find_duplicates", person_ref="per_4")["total"] == 0


def test_merging_keeps_everything_that_was_known(office: Context, call: Any) -> None:
    answer = call(office, "contacts_merge_people", keep="per_1", merge=["per_3"])
    person = answer["person"]
    assert (person["phone"], person["title"], person["is_starred"]) == ("617-555-0101", "Foreman", True)
    assert person["notes"] == "Cranes.\nCalls back.\nAlso: sandoval.jo@mail.example"
    assert person["groups"] == ["Board", "Christmas cards"]
    assert office.db.count("contacts.memberships") == 2
    assert _refused(call, office, "contacts_merge_people", keep="per_1", merge=["per_1"]).type == "conflict"


def test_birthdays_come_in_order(office: Context, call: Any) -> None:
    found = call(office, "contacts_upcoming_birthdays", days=10)["people"]
    assert [(p["name"], p["next_birthday"], p["weekday"], p["turns"], p["in_days"]) for p in found] == [("Jo Sandoval", "2026-03-15", "Sunday", 36, 6)]
    later = call(office, "contacts_upcoming_birthdays", days=366)["people"]
    assert [(p["id"], p["next_birthday"]) for p in later] == [("per_1", "2026-03-15"), ("per_2", "2027-02-28"), ("per_4", "2027-03-08")]


def test_groups_and_their_mail(office: Context, call: Any) -> None:
    call(office, "contacts_add_to_group", group="Board", people=["mira@quaymark.example", "per_1"])
    answer = call(office, "contacts_mail_group", group="board", subject="Agenda", body="Friday.")
    assert answer["recipients"] == ["jo@quaymark.example", "mira@quaymark.example"]
    assert office.db.rows("email.messages", "folder = 'sent'")[0]["to"] == answer["recipients"]
    hidden = call(office, "contacts_mail_group", group="Board", subject="Agenda", body="x", hide_recipients=True, exclude=["per_1"])
    assert (hidden["message"]["to"], hidden["message"]["bcc"]) == ([], ["mira@quaymark.example"])
    assert "Jo Sandoval" in _refused(call, office, "contacts_remove_from_group", group="Board", people=["per_2"]).hint
    call(office, "contacts_remove_from_group", group="Board", people=["per_1", "per_4"])
    assert _refused(call, office, "contacts_mail_group", group="Board", subject="x", body="y").type == "conflict"
    assert _refused(call, office, "contacts_create_group", name="BOARD").type == "conflict"


def test_deleting_takes_memberships_along(office: Context, call: Any) -> None:
    call(office, "contacts_delete_person", person_ref="per_1")
    assert [m["person_id"] for m in office.db.rows("contacts.memberships")] == ["per_3"]
    call(office, "contacts_delete_group", group="Christmas cards")
    assert office.db.count("contacts.memberships") == 0
    assert office.db.count("contacts.people") == 3


def test_a_sender_becomes_a_person(office: Context, call: Any) -> None:
    person = call(office, "contacts_import_from_email", message_id="msg_1", group="Board")["person"]
    assert tuple(person[c] for c in ("name", "company", "title", "phone", "groups")) == (
        "Ute Brandt",
        "Saltline AG",
        "Buyer",
        "030-555-0199",
        ["Board"],
    )
    assert _refused(call, office, "contacts_import_from_email", message_id="msg_1").type == "conflict"
    history = call(office, "contacts_get_history", person_ref="Ute Brandt")
    assert ([m["id"] for m in history["mails"]], history["known_in"], history["days_since_last_mail"]) == (["msg_1"], ["crm.contacts"], 3)


def test_vcards_go_out_and_come_back(office: Context, call: Any) -> None:
    call(office, "contacts_update_person", person_ref="per_1", notes="Likes cranes, winches; rope.\n" + "Ärmel " * 20, address="4 Pier St, Boston")
    answer = call(office, "contacts_export_vcards", path="/contacts/board.vcf", group="Board")
    text = answer["file"]["content"]
    assert text.startswith("BEGIN:VCARD\r\nVERSION:4.0\r\nFN:Jo Sandoval\r\nN:Sandoval;Jo;;;\r\nEMAIL:jo@quaymark.example\r\nTEL:617-555-0101\r\n")
    assert "NOTE:Likes cranes\\, winches\\; rope.\\n" in text
    assert max(len(line.encode()) for line in text.split("\r\n")) <= 75
    assert _refused(call, office, "contacts_export_vcards", path="/contacts/board.vcf").type == "conflict"
    before = call(office, "contacts_get_person", person_ref="per_1")
    call(office, "contacts_delete_person", person_ref="per_1")
    back = call(office, "contacts_import_vcards", path="/contacts/board.vcf", group="Board")
    (person,) = back["added"]
    for column in ("name", "email", "phone", "company", "birthday", "address"):
        assert person[column] == before[column], column
    assert person["notes"] == before["notes"].strip()
    assert call(office, "contacts_import_vcards", path="/contacts/board.vcf") == {
        "added": [],
        "skipped": [{"email": "jo@quaymark.example", "known_as": person["id"]}],
    }
