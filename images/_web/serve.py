"""Serving a site: resets that name no pack take DATA_PACK, a request waits WAIT_S for an unfinished one of its session."""

from __future__ import annotations

import os
from pathlib import Path

from _server import serve
from starlette.applications import Starlette

from . import packs
from .app import make
from .site import Site


def main(site: Site, port: int = 3000) -> int:
    """Serve until SIGTERM or SIGINT; 0, or 2 when the settings are wrong."""

    def application(data_dir: Path) -> Starlette:
        pack, known = os.environ.get("DATA_PACK") or "default", packs.names(site.packs)
        if pack not in known:
            raise ValueError(f"DATA_PACK: no pack {pack!r}; there are: {', '.join(known)}")
        return make(site, data_dir, pack, float(os.environ.get("WAIT_S") or 10))

    return serve.main(site.name, port, application)
