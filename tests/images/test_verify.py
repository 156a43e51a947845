"""The check language: what each comparator and function means, every fault with its path, and a worker that can be killed."""

# ruff: noqa: E501 - a case is easier to read in one row
from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from _verify import checks, evaluate, matching
from _verify.faults import ExecutionFailed, InvalidChecks, TimedOut
from _verify.verifier import Verifier
from hypothesis import given
from hypothesis import strategies as st

from tests.images.serving import Served, served

ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "title": "Stand-up",
        "start": "2026-03-09T09:30:00-04:00",
        "n": 1,
        "amount": 0.1,
        "tags": ["x", "y"],
        "done": True,
        "meta": {"k": {"v": 1, "w": 2}},
        "none": None,
    },
    {"id": "b", "title": "Review", "start": "2026-03-10T10:00:00-04:00", "n": 2, "amount": 0.2, "tags": [], "done": False, "meta": {}, "none": None},
    {
        "id": "c",
        "title": "Review 2",
        "start": "2026-11-10T10:00:00-05:00",
        "n": 2,
        "amount": 10,
        "tags": ["x"],
        "done": False,
        "meta": {"k": {"v": 1}},
        "none": None,
    },
]
LOG = [
    {"n": 1, "at": "", "caller": "a", "call": "reset", "tool": None, "args": {}, "ok": True, "result": None},
    {"n": 2, "at": "", "caller": "a", "call": "tool", "tool": "email_search", "args": {"query": "x"}, "ok": True, "result": None},
    {"n": 3, "at": "", "caller": "a", "call": "tool", "tool": "email_send", "args": {"to": ["p@x"]}, "ok": False, "result": None},
    {"n": 4, "at": "", "caller": "a", "call": "tool", "tool": "email_send", "args": {"to": ["p@x"], "subject": "S"}, "ok": True, "result": None},
]
WORDS = checks.Vocabulary(
    {"calendar": {"events": list(ROWS[0])}, "email": {"messages": ["id", "to"]}},
    list(LOG[0]),
    {t: t for t in ("email_search", "email_send")} | {"send_email": "email_send"},
)


def judge(*asserts: dict[str, Any], type: str = "state") -> dict[str, Any]:
    check = {"id": "c", "type": type, **({"server": "calendar", "table": "events"} if type == "state" else {}), "asserts": list(asserts)}
    read = checks.read([check], None, WORDS)
    return evaluate.evaluate(read, {"calendar": {"events": ROWS}}, LOG)


def holds(comparator: str, value: Any, function: str | None = None, *args: Any, type: str = "state") -> bool:
    assertion = {"comparator": comparator, "value": value, "function_args": list(args)} | ({"function": function} if function else {})
    result: bool = judge(assertion, type=type)["success"]
    return result


def faults(*raw: Any, claims: Any = None) -> dict[str, str]:
    with pytest.raises(InvalidChecks) as caught:
        checks.read(list(raw), claims, WORDS)
    return {fault["path"].replace("$.checks[0]", "@"): fault["message"] for fault in caught.value.faults}


def state(*asserts: Any, **more: Any) -> dict[str, Any]:
    return {"id": "c", "type": "state", "server": "calendar", "table": "events", "asserts": list(asserts), **more}


@pytest.mark.parametrize(("selection", "comparator", "value", "expected"), [
    ("_result[0].title", "eq", "Stand-up", True), ("_result[0].n", "eq", "1", False), ("_result[0].n", "eq", True, False), ("_result[0].n", "eq", 1.0, True),
    ("_result[0].done", "eq", 1, False), ("_result[0].done", "eq", True, True), ("_result[0].none", "eq", None, True), ("_result[0].n", "neq", "1", True),
    ("_result[0].n", "gt", 0, True), ("_result[0].n", "gte", 1, True), ("_result[0].n", "lt", 1, False), ("_result[0].n", "lte", 1, True),
    ("_result[0].done", "gte", 0, False), ("_result[0].n", "gt", "0", False), ("_result[0].title", "gt", "Sta", True), ("_result[0].none", "lt", 5, False),
    ("_result[0].start", "eq", "2026-03-09T13:30:00Z", False), ("_result[0].start", "gte", "2026-03-09T13:30:00Z", True), ("_result[0].start", "gt", "2026-03-09T13:30:00Z", False),
    ("_result[0].n", "in", [3, 1], True), ("_result[0].n", "in", ["1", True], False), ("_result[0].title", "contains", "and", True), ("_result[0].title", "contains", "AND", False),
    ("_result[0].tags", "contains", "x", True), ("_result[0].tags", "contains", "z", False), ("_result[0].n", "contains", 1, False),
    ("_result[0].meta", "contains", {"k": {"v": 1}}, True), ("_result[0].meta", "eq", {"k": {"v": 1}}, False), ("_result[0].meta", "deep_equal", {"k": {"w": 2.0, "v": 1}}, True),
    ("_result[0].title", "regex", "(?i)^STAND.up$", True), ("_result[0].title", "regex", "up.", False), ("_result[0].n", "regex", "1", False),
    ("_result[*].n", "eq", [1, 2, 2], True), ("_result[*].tags[*]", "eq", ["x", "y", "x"], True), ("_result[*].meta.k.v", "eq", [1, 1], True), ("_result[1].tags[0]", "neq", "q", False),
    ("_result[9].title", "neq", "q", False), ("_result[9].title", "eq", None, False),
])  # fmt: skip
def test_comparators(selection: str, comparator: str, value: Any, expected: bool) -> None:
    assert holds(comparator, value, None, selection) is expected


@pytest.mark.parametrize(("function", "args", "value"), [
    ("object_contains", [{"title": "Review"}], True), ("object_contains", ["_result[*]", {"title": "Review", "n": 1}], False), ("object_contains", [{"meta": {"k": {"v": 1}}}], True),
    ("object_contains", [{"n": "2"}], False), ("object_contains", [{"tags": ["x"]}], True), ("object_contains", [{"tags": ["y"]}], False), ("object_contains", [{"done": 1}], False),
    ("object_contains", [{"tags": {"comparator": "contains", "value": "y"}}], True), ("object_contains", [{"title": {"comparator": "regex", "value": "(?i)review \\d"}}], True),
    ("object_contains", [{"tags": {"comparator": "contains", "value": {"comparator": "in", "value": ["q", "y"]}}}], True),
    ("count", [], 3), ("count", ["_result[*]"], 3), ("count", [{"n": 2}], 2), ("count", [{"n": {"comparator": "gte", "value": 1}, "done": False}], 2), ("count", ["_result[0].tags"], 2),
    ("count", [{"none": None}], 3), ("exists", [], True), ("exists", ["_result[5]"], False), ("exists", ["_result[1].tags"], False), ("exists", ["_result[0].none"], True),
    ("pluck", ["title"], ["Stand-up", "Review", "Review 2"]), ("pluck", ["_result[*]", "id", {"n": 2}], ["b", "c"]), ("sum", ["n"], 5), ("sum", ["_result[*].n"], 5),
    ("sum", ["amount", {"n": {"comparator": "lte", "value": 2}, "id": {"comparator": "in", "value": ["a", "b"]}}], 0.3), ("unique", ["n"], [1, 2]), ("unique", ["_result[*].tags[*]"], ["x", "y"]),
    ("length", [], 3), ("length", ["_result[0].title"], 8), ("length", ["_result[0].tags"], 2), ("sorted_by", ["start"], True), ("sorted_by", ["n", "desc"], False),
])  # fmt: skip
def test_functions(function: str, args: list[Any], value: Any) -> None:
    assert holds("deep_equal", value, function, *args), judge({"comparator": "eq", "function": function, "function_args": args, "value": value})
    assert not holds("eq", "something else", function, *args)


@pytest.mark.parametrize(("function", "args", "value"), [
    ("called", ["email_send"], 1), ("called", ["send_email"], 1), ("called", ["email_search", {"query": "x"}], 1), ("called", ["email_search", {"query": "y"}], 0),
    ("called", ["email_send", {"to": {"comparator": "contains", "value": "p@x"}}], 1), ("order", [["email_search", "email_send"]], True), ("order", [["email_send", "email_search"]], False),
    ("order", [["email_send", "email_send"]], False), ("count", [{"ok": False}], 1), ("count", [], 3), ("exists", [], True),
])  # fmt: skip
def test_trajectory(function: str, args: list[Any], value: Any) -> None:
    assert holds("eq", value, function, *args, type="trajectory")


def test_log_checks_see_every_row() -> None:
    assert holds("eq", 4, "count", type="log")
    assert holds("eq", 1, "count", {"call": "reset", "caller": "a"}, type="log")


def test_the_answer() -> None:
    failed = judge({"comparator": "eq", "function": "count", "function_args": [{"n": 2}], "value": 1}, {"comparator": "eq", "function": "count", "value": 3})
    (verifier,) = failed["verifiers"]
    assert failed["success"] is False
    assert (verifier["id"], verifier["operator"], verifier["success"]) == ("c", "state_comparison", False)
    assert verifier["all_results"] == ROWS
    assert verifier["asserts"][0] == {
        "actual_value": 2, "expected_value": 1, "comparator": "eq", "function": "count", "success": False, "matching_results": ROWS[1:],
    }  # fmt: skip
    assert verifier["asserts"][1]["success"] is True
    passed = judge({"comparator": "eq", "function": "count", "value": 3})
    assert "all_results" not in passed["verifiers"][0]
    assert "leads to nothing" in judge({"comparator": "neq", "function_args": ["_result[7].n"], "value": 1})["verifiers"][0]["asserts"][0]["note"]


def test_pending_counts_only_when_nothing_failed() -> None:
    good, bad = ({"comparator": "eq", "function": "count", "value": n} for n in (3, 4))
    for first, claims, expected in ((good, ["said"], "PENDING"), (bad, ["said"], False), (good, None, True)):
        read = checks.read([state(first)], claims, WORDS)
        assert evaluate.evaluate(read, {"calendar": {"events": ROWS}}, LOG)["success"] == expected
    assert evaluate.evaluate(checks.read([{"id": "r", "type": "rubric", "rubric": "x"}], None, WORDS), {}, [])["success"] == "PENDING"


@pytest.mark.parametrize("spelling", ["asserts", "assertions", "conditions"])
def test_spellings(spelling: str) -> None:
    check = {"id": "c", "type": "state", "server": "calendar", "table": "events", spelling: [{"comparator": "eq", "function": "count", "value": 3}]}
    assert len(checks.read([check], None, WORDS)[0].asserts) == 1
    assert "@.asserts" in faults({**check, "conditions" if spelling != "conditions" else "asserts": []})


def test_every_fault_at_once() -> None:
    found = faults(
        {"id": "", "typ": "state"},
        {"id": "x", "type": "stat", "asserts": []},
        {"id": "x", "type": "state", "server": "calendr", "table": "events", "asserts": [{}]},
        {"id": "y", "type": "state", "server": "calendar", "table": "event", "asserts": []},
        7,
    )
    assert "did you mean 'type'" in found["@.typ"]
    assert found["@.id"] == "must be text"
    assert "did you mean 'state'" in found["$.checks[1].type"]
    assert "two checks" in found["$.checks[2].id"]
    assert "did you mean 'calendar'" in found["$.checks[2].server"]
    assert found["$.checks[2].asserts[0].comparator"].startswith("is missing; comparators: eq")
    assert "did you mean 'events'" in found["$.checks[3].table"]
    assert "1 to" in found["$.checks[3].asserts"]
    assert found["$.checks[4]"] == "must be an object"


@pytest.mark.parametrize(("assertion", "path", "said"), [
    ({"comparator": "eq", "function": "cuont", "value": 1}, ".function", "did you mean 'count'?); functions: object_contains"),
    ({"comparator": "eqq", "function": "count", "value": 1}, ".comparator", "did you mean 'eq'"),
    ({"comparator": "eq", "function": "count"}, ".value", "is missing"),
    ({"comparator": "eq", "function": "count", "valu": 1, "value": 1}, ".valu", "did you mean 'value'"),
    ({"comparator": "regex", "value": "(a"}, ".value", "bad pattern: missing )"),
    ({"comparator": "regex", "value": "(?=a)"}, ".value", "no look-around"),
    ({"comparator": "regex", "value": "a" * 3000}, ".value", "at most"),
    ({"comparator": "regex", "value": 1}, ".value", "takes a text"),
    ({"comparator": "in", "value": "ab"}, ".value", "takes a list"),
    ({"comparator": "gt", "value": True}, ".value", "number or a text"),
    ({"comparator": "eq", "value": float("nan")}, ".value", "NaN"),
    ({"comparator": "eq", "value": [{"a": float("inf")}]}, ".value", "infinities"),
    ({"comparator": "eq", "function": "count", "function_args": [{"titel": 1}], "value": 1}, ".function_args[0].titel", "did you mean 'title'"),
    ({"comparator": "eq", "function": "count", "function_args": ["_result[*]", {"title": {"comparator": "rex", "value": 1}}], "value": 1}, ".function_args[1].title.comparator", "did you mean 'regex'"),
    ({"comparator": "eq", "function": "count", "function_args": [{"title": {"comparator": "regex", "value": "["}}], "value": 1}, ".function_args[0].title.value", "bad pattern"),
    ({"comparator": "eq", "function": "count", "function_args": [7], "value": 1}, ".function_args[0]", "must be an object"),
    ({"comparator": "eq", "function": "sum", "function_args": ["amout"], "value": 1}, ".function_args[0]", "did you mean 'amount'"),
    ({"comparator": "eq", "function": "pluck", "value": 1}, ".function_args", "takes a selection?, column, pattern?"),
    ({"comparator": "eq", "function_args": ["_result[0]title"], "value": 1}, ".function_args[0]", "bad selection"),
    ({"comparator": "eq", "function_args": ["_result[0].titel"], "value": 1}, ".function_args[0]", "did you mean 'title'"),
    ({"comparator": "eq", "function": "sorted_by", "function_args": ["n", "up"], "value": True}, ".function_args[1]", "direction"),
    ({"comparator": "eq", "function": "called", "function_args": ["email_send"], "value": True}, ".function", "no function 'called'"),
    ({"comparator": "eq", "function": "count", "function_args": {}, "value": 1}, ".function_args", "must be a list"),
    ([], "", "must be an object"),
])  # fmt: skip
def test_faulty_assertions(assertion: Any, path: str, said: str) -> None:
    found = faults(state(assertion))
    assert said in found[f"@.asserts[0]{path}"], found


def test_faulty_trajectories() -> None:
    found = faults({"id": "t", "type": "trajectory", "asserts": [
        {"comparator": "eq", "function": "called", "function_args": ["email_sent"], "value": 1}, {"comparator": "eq", "function": "order", "function_args": [[]], "value": True},
    ]})  # fmt: skip
    assert "did you mean 'email_send'" in found["@.asserts[0].function_args[0]"]
    assert "list of tools" in found["@.asserts[1].function_args[0]"]


def test_too_much_is_refused() -> None:
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    assert "nested" in faults(state({"comparator": "eq", "value": deep}))["@.asserts[0].value"]
    assert "$.checks" in faults(*[state({"comparator": "eq", "function": "count", "value": 1}) for _ in range(300)])
    assert "nothing to check" in faults()["$.checks"]
    assert "$.claims" in faults(claims=[1])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text("a.[*]_result", max_size=9),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(["id", "type", "server", "table", "asserts", "comparator", "function", "function_args", "value", "title"]), x, max_size=5
            )
        ),
        max_leaves=20,
    )
)
def test_no_check_breaks_the_reader(raw: Any) -> None:
    found: list[dict[str, str]] = []
    try:
        assert evaluate.evaluate(checks.read([raw], None, WORDS), {}, [])["success"] in (True, False, "PENDING")
    except InvalidChecks as error:
        found = error.faults
    assert all(fault["path"].startswith("$.") and fault["message"] for fault in found)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=2), x, max_size=3),
)


@given(VALUES, VALUES)
def test_equality_is_an_equivalence(a: Any, b: Any) -> None:
    assert matching.equal(a, a)
    assert matching.equal(a, b) == matching.equal(b, a)
    assert matching.compare("eq", a, b) != matching.compare("neq", a, b)


@pytest.mark.parametrize("function_args", [["sum", "title"], ["sorted_by", "none"], ["length", "_result[0].n"], ["pluck", "_result[*].meta", "v"]])
def test_a_function_that_cannot_be_computed(function_args: list[Any]) -> None:
    function, *args = function_args
    with pytest.raises(ExecutionFailed, match=function):
        holds("eq", 1, function, *args)


COUNT = {"comparator": "eq", "function": "count", "value": 3}


def run(verifier: Verifier, raw: list[Any], read: Any = None, timeout: float = 10) -> dict[str, Any]:
    async def rows(tables: list[tuple[str, str]], log: bool) -> Any:
        return {"calendar": {"events": ROWS}}, LOG if log else []

    async def once() -> dict[str, Any]:
        try:
            return await verifier.verify(raw, None, read or rows, timeout)
        finally:
            await verifier.close()

    return asyncio.run(once())


class TestWorker:
    """Evaluation happens in a process of its own."""

    def test_it_answers(self) -> None:
        assert run(Verifier(WORDS), [state(COUNT)])["success"] is True
        with pytest.raises(InvalidChecks, match="did you mean 'count'"):
            run(Verifier(WORDS), [state({**COUNT, "function": "conut"})])
        with pytest.raises(ExecutionFailed, match="is no number"):
            run(Verifier(WORDS), [state({"comparator": "eq", "function": "sum", "function_args": ["title"], "value": 1})])

    def test_data_is_read_only_for_good_checks(self) -> None:
        asked: list[Any] = []

        async def read(tables: Any, log: bool) -> Any:
            asked.append((tables, log))
            return {"calendar": {"events": ROWS}}, []

        with pytest.raises(InvalidChecks):
            run(Verifier(WORDS), [state(COUNT), {"id": "c"}], read)
        assert asked == []
        run(Verifier(WORDS), [state(COUNT)], read)
        assert asked == [([("calendar", "events")], False)]

    def test_the_deadline_kills_it(self) -> None:
        # A pattern with many alternatives over a long text, again and again: linear, and still far beyond the deadline.
        text = "ab" * 200_000
        patterns = [{"comparator": "regex", "value": f"(a|b)*{n}$", "function_args": ["_result[0].title"]} for n in range(100)]
        hostile = [{**state(*patterns), "id": str(n)} for n in range(100)]

        async def read(tables: Any, log: bool) -> Any:
            return {"calendar": {"events": [{**ROWS[0], "title": text}]}}, []

        start = time.monotonic()
        with pytest.raises(TimedOut, match=r"0.4 s"):
            run(Verifier(WORDS), hostile, read, timeout=0.4)
        assert time.monotonic() - start < 2
        assert _workers() == []

    def test_a_worker_that_dies_is_an_error_and_is_replaced(self) -> None:
        async def kill(tables: Any, log: bool) -> Any:
            for pid in _workers():
                os.kill(pid, signal.SIGKILL)
            return {"calendar": {"events": ROWS}}, []

        with pytest.raises(ExecutionFailed, match="died"):
            run(Verifier(WORDS), [state(COUNT)], kill)
        assert run(Verifier(WORDS), [state(COUNT)])["success"] is True

    def test_a_spare_is_used_again(self) -> None:
        async def twice() -> tuple[list[int], list[int]]:
            verifier = Verifier(WORDS)

            async def rows(tables: Any, log: bool) -> Any:
                return {"calendar": {"events": ROWS}}, []

            await verifier.verify([state(COUNT)], None, rows)
            before = _workers()
            await verifier.verify([state(COUNT)], None, rows)
            after = _workers()
            await verifier.close()
            return before, after

        before, after = asyncio.run(twice())
        assert len(before) == 1
        assert before == after
        assert _workers() == []


def _workers(parent: int | None = None) -> list[int]:
    """The workers that this process (or `parent`) started and that still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            argv = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if fields["PPid"] == str(parent or os.getpid()) and b"_verify.worker" in argv:
            found.append(int(status.parent.name))
    return found


class TestOverHttp:
    """POST /verifier."""

    def post(self, server: Served, *raw: Any, **more: Any) -> Any:
        return server.post("/verifier", {"tags": {"assignmentId": "verify"}, "checks": list(raw), **more})

    def test_state_and_trajectory(self, server: Served) -> None:
        server.post("/reset", {"tags": {"assignmentId": "verify"}})
        added = server.call("verify", "add_calendar_event", title="Checked", start="2026-03-20T10:00:00", end="2026-03-20T11:00:00")
        row = {"id": added["result"]["event"]["id"], "title": "Checked", "start": "2026-03-20T10:00:00-04:00"}
        answer = self.post(
            server,
            state({"comparator": "eq", "function": "count", "function_args": [row], "value": 1}),
            {
                "id": "t",
                "type": "trajectory",
                "asserts": [{"comparator": "eq", "function": "called", "function_args": ["add_calendar_event", {"title": "Checked"}], "value": 1}],
            },
        )
        assert answer.status == 200
        assert answer.json["success"] is True, answer.json
        assert answer.json["session_id"] == "verify"
        assert self.post(server, state(COUNT), claims=["said so"]).json["success"] is False
        assert self.post(server, claims=["said so"]).json["success"] == "PENDING"

    def test_faults(self, server: Served) -> None:
        answer = self.post(server, state({**COUNT, "function": "conut"}), {"id": "d", "type": "state", "table": "events", "asserts": [COUNT]})
        assert (answer.status, answer.json["error"]["type"]) == (400, "ValidationError")
        assert {fault["path"] for fault in answer.json["error"]["faults"]} == {"$.checks[0].asserts[0].function", "$.checks[1].server"}
        assert server.post("/verifier", {"tags": {"assignmentId": "verify"}}).status == 400
        assert server.post("/verifier", b'{"checks": [{"id": "x", "value": NaN}]}').status == 400
        assert self.post(server, state(COUNT), timeout=0).status == 400
        assert self.post(server, state(COUNT), timeout=1e9).status == 400

    def test_execution_error(self, server: Served) -> None:
        answer = self.post(server, state({"comparator": "eq", "function": "sum", "function_args": ["title"], "value": 1}))
        assert (answer.status, answer.json["error"]["type"]) == (500, "ExecutionError")
        assert "is no number" in answer.json["error"]["message"]

    def test_a_hostile_check_stops_neither_the_server_nor_others(self, tmp_path: Path) -> None:
        with served(tmp_path) as server:
            many = [
                {**state(*[{"comparator": "regex", "value": f"(x+x+)+y{n}", "function_args": ["_result[*].title"]} for n in range(100)]), "id": str(i)}
                for i in range(200)
            ]
            for check in many:
                check["asserts"] = [
                    {
                        "comparator": "eq",
                        "function": "count",
                        "function_args": [{"description": {"comparator": "regex", "value": f"(.*)*{a['value']}"}}],
                        "value": 1,
                    }
                    for a in check["asserts"]
                ]
            answer = server.post("/verifier", {"checks": many, "timeout": 0.3})
            assert (answer.status, answer.json["error"]["type"]) == (504, "VerifierTimeout")
            assert _workers(server.process.pid) == []
            assert server.get("/health").status == 200
            assert server.post("/verifier", {"checks": [state({**COUNT, "comparator": "gt"})]}).json["success"] is True

    def test_workers_end_with_a_killed_server(self, tmp_path: Path) -> None:
        with served(tmp_path) as server:
            server.post("/verifier", {"checks": [], "claims": ["x"]})
            (worker,) = _workers(server.process.pid)
            server.kill()
            deadline = time.monotonic() + 5
            while Path(f"/proc/{worker}/cmdline").exists() and b"_verify" in Path(f"/proc/{worker}/cmdline").read_bytes():
                assert time.monotonic() < deadline
