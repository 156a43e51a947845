"""The control socket against a real QEMU: ids, events, deadlines, descriptors, the end."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gymctl.errors import Unavailable
from gymctl.vm.qmp import Qmp, Refused, listener
from tests.vm.conftest import Bare

NONE = ("-machine", "none", "-display", "none")


def test_each_thread_gets_its_own_answer(bare: Bare) -> None:
    qmp = bare(*NONE)

    def ask(number: int) -> bool:
        if number % 3:
            return bool(qmp.execute("query-version")["qemu"]["major"])
        with pytest.raises(Refused, match=f"nothing-{number}"):
            qmp.execute(f"nothing-{number}")
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(400)))
    assert qmp.version.count(".") == 2


def test_an_event_is_heard_while_others_ask(bare: Bare) -> None:
    qmp = bare(*NONE)
    heard: list[str] = []
    waiting = threading.Thread(target=lambda: heard.append(qmp.event("STOP", "SHUTDOWN", timeout=10)["event"]))
    waiting.start()
    for _ in range(20):
        qmp.execute("query-status")
    qmp.execute("cont")
    qmp.execute("stop")
    waiting.join(10)
    assert heard == ["STOP"]


def test_refused_says_why_and_the_next_command_works(bare: Bare) -> None:
    qmp = bare(*NONE)
    with pytest.raises(Refused) as refused:
        qmp.execute("blockdev-add", driver="no-such-driver", node_name="x")
    assert "no-such-driver" in refused.value.message
    assert refused.value.type == "GenericError"
    assert qmp.execute("query-status")["status"]


def test_a_deadline_is_kept_and_a_late_answer_is_nobodys(bare: Bare) -> None:
    qmp = bare(*NONE)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"0\.2 s"):
        qmp.event("RESET", timeout=0.2)
    assert time.monotonic() - began < 2
    with pytest.raises(Unavailable):
        qmp.execute("query-version", timeout=0.0)
    assert "status" in qmp.execute("query-status")  # and not the version, which comes first


def test_a_descriptor_goes_with_its_command(bare: Bare, tmp_path: Path) -> None:
    qmp = bare(*NONE)
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    number = qmp.execute("add-fd", fds=[fd])["fdset-id"]
    os.close(fd)
    assert [row["fdset-id"] for row in qmp.execute("query-fdsets")] == [number]


def test_its_end_is_heard_at_once(bare: Bare) -> None:
    qmp = bare(*NONE)
    ends: list[float] = []

    def wait() -> None:
        with pytest.raises(Unavailable, match="closed"):
            qmp.event("NEVER", timeout=30)
        ends.append(time.monotonic())

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    qmp.execute("quit")
    for thread in threads:
        thread.join(10)
    assert len(ends) == 4
    assert max(ends) - began < 2
    with pytest.raises(Unavailable):
        qmp.execute("query-status")


def test_who_never_answers_and_who_is_not_there(tmp_path: Path) -> None:
    with listener(tmp_path / "silent"), pytest.raises(Unavailable, match="greeting"):
        Qmp(tmp_path / "silent", timeout=0.2)
    with pytest.raises(Unavailable, match="no QEMU answers"):
        Qmp(tmp_path / "nothing")
