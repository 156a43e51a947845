"""What makes a site: its tables, its pages and its packs."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from .tables import Tables

if TYPE_CHECKING:
    from .packs import Checked
    from .pages import Page


@dataclass(frozen=True, slots=True)
class Route:
    """One address of a site: GET shows it, POST does `name`, which the log and undo know it by."""

    path: str
    method: str
    name: str
    handle: Callable[[Page], Response]


@dataclass(frozen=True)
class Site:
    """`folder` holds templates/ and static/; `complete` finishes a pack's checked rows or reports faults; `shell` is what every page's frame needs."""

    name: str
    title: str
    version: str
    folder: Path
    packs: Path
    tables: Tables
    routes: Sequence[Route]
    complete: Callable[[Checked], None]
    shell: Callable[[Page], dict[str, Any]]

    @functools.cached_property
    def code_digest(self) -> str:
        """Of the code that reads packs and lays out tables."""
        here = Path(__file__).parent
        files = [here / f"{name}.py" for name in ("packs", "store", "tables", "dates")]
        files += sorted(here.with_name("_server").glob("*.py")) + sorted(self.folder.glob("*.py"))
        return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
