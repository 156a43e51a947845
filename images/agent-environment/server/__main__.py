"""`python -m server`: serve with new sessions in universe UNIVERSE_ID."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from _server import serve

if TYPE_CHECKING:
    from .app import Front


def make(data_dir: Path) -> Front:
    """The application; ValueError when there is no such universe, OSError."""
    from . import app, universe

    default = os.environ.get("UNIVERSE_ID") or "software-team"
    if default not in universe.names():
        raise ValueError(f"UNIVERSE_ID: no universe {default!r}; there are: {', '.join(universe.names())}")
    return app.make(data_dir, default)


if __name__ == "__main__":
    sys.exit(serve.main("agent-environment", 1984, make))
