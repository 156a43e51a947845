"""Judging a desktop: the evaluators run in a child of ours, which is killed with its whole group at the deadline."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from gymctl import proc, wire
from gymctl.desktop.acting import Desk
from gymctl.episode import Json, entries

FAIL = "fail"
"""What an agent answers, or does last, when a task cannot be done."""
GRACE = 2.0
"""Seconds that the child has after what it asks of the guest has run out of time: it then says itself what that was."""


def verify(desk: Desk, session: str, checks: list[Json], timeout: float) -> wire.Reply:
    """What the evaluators say of the guest, as a verifier answers over HTTP: 200, 400 for faulty checks, 500 for no verdict."""
    instance = desk.instance
    folder = Path(tempfile.mkdtemp(prefix="verify-", dir=instance.directory))
    answers = {str(check["answer"]) for check in checks if check.get("answer") is not None}
    request = {
        "url": instance.url, "token": instance.token,
        "checks": [{k: v for k, v in check.items() if k != "answer"} for check in checks], "folder": str(folder),
        "failed": FAIL in {answer.strip().lower() for answer in answers} or _last_action(instance.directory / "episode.jsonl", session) == FAIL,
        "timeout": max(1.0, timeout - GRACE),
    }  # fmt: skip
    try:
        argv = [sys.executable, "-m", "gymctl.evaluators"]
        done = proc.run(argv, timeout=timeout, env=proc.module_environment(instance.label), input=json.dumps(request))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _reply(done, timeout)


def _last_action(log: Path, session: str) -> str:
    """What was done last in the session since it was reset, in lower case."""
    done = [entry for entry in entries(log) if entry.get("session") == session and entry.get("type") in ("step", "reset")]
    return str(done[-1].get("action", "")).lower() if done else ""


def _reply(done: proc.Result, timeout: float) -> wire.Reply:
    said = [line for line in done.stderr.splitlines() if line.strip()]
    last = wire.printable(said[-1]) if said else "it had not begun"
    if done.timed_out:
        return _error("EvaluatorTimeout", f"the evaluators did not end within {timeout:g} s; at the end: {last}")
    try:
        if done.code:
            raise ValueError
        answer = wire.strict(done.stdout)
        return wire.Reply(int(answer["status"]), {}, json.dumps(answer["body"]).encode())
    except (ValueError, KeyError, TypeError):
        doing = next((line for line in reversed(said) if line.startswith(("result:", "expected:", "postconfig[", "comparing:"))), "")
        where = f" at {wire.printable(doing)}" if doing else ""
        return _error("EvaluatorCrashed", f"the evaluators ended with exit code {done.code}{where}: {last[:500]}")


def _error(type: str, message: str) -> wire.Reply:
    body: dict[str, Any] = {"error": {"type": type, "message": message}}
    return wire.Reply(500, {}, json.dumps(body).encode())
