"""Start any agent environment on any launch method, reset it, let an agent act, get a verdict.

    with gymctl.open("agent-environment", runner="local", task="move-standup") as env:
        env.reset()
        env.step("email_search", query="stand-up")
        print(env.verify().verdict)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymctl.env import open  # noqa: A004  (as gzip.open)

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def __getattr__(name: str) -> Any:
    if name == "open":  # loaded at the first use: the command line needs it not
        from gymctl.env import open  # noqa: A004

        return open
    raise AttributeError(f"module 'gymctl' has no attribute {name!r}")
