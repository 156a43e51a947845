"""gymctl.open: the same verbs from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import gymctl
from gymctl import instances
from gymctl.errors import NotFound, Unsupported, UsageError
from tests.conftest import RECIPE


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GYMCTL_CACHE_DIR", str(tmp_path / "cache"))


def test_an_episode() -> None:
    with gymctl.open(RECIPE, runner="local", task="move-standup") as env:
        assert env.reset()["state"] == "software-team"
        with pytest.raises(Unsupported, match="checkpoint is for desktops"):
            env.reset(checkpoint="post_start")
        assert "email_send" in [tool["name"] for tool in env.tools()]
        assert env.verify().verdict == "failed"
        assert env.task is not None
        for call in env.task.solution:
            env.step(call.tool, **call.args)
        assert env.verify().score == 1.0
        with pytest.raises(NotFound, match="Email_send"):
            env.step({"action": "Email_send", "args": {}})
        assert instances.names() == [env.instance.name]
    assert instances.names() == []


def test_an_error_inside_the_block_still_ends_it() -> None:
    def fail() -> None:
        with gymctl.open(RECIPE, runner="local") as env:
            assert env.reset(universe="sales-team")["state"] == "sales-team"
            with pytest.raises(UsageError):  # there is nothing to verify: that is not `passed`
                env.verify()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert instances.names() == []


def test_a_task_that_does_not_exist_leaves_nothing() -> None:
    with pytest.raises(NotFound, match="no task"), gymctl.open(RECIPE, runner="local", task="nothing"):
        pass
    assert instances.names() == []
