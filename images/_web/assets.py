"""Style sheets and scripts: read once, served under their digest, so that a browser may keep them for ever."""

from __future__ import annotations

import hashlib
from pathlib import Path

from _server.faults import Fault
from starlette.requests import Request
from starlette.responses import Response

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Assets:
    """The files of some folders, the later folder's first; modules import each other by name, so all are at one place."""

    def __init__(self, *folders: Path) -> None:
        self.files = {p.name: p.read_bytes() for folder in folders for p in sorted(folder.iterdir()) if p.suffix in TYPES}
        self.digest = hashlib.sha256(b"\0".join(name.encode() + content for name, content in sorted(self.files.items()))).hexdigest()[:12]

    def address(self, name: str) -> str:
        """Where a file is; KeyError for one that does not exist."""
        assert name in self.files, name  # noqa: S101 - a template names it
        return f"/static/{self.digest}/{name}"

    async def serve(self, request: Request) -> Response:
        """A file; its address changes with its content."""
        name = str(request.path_params["name"])
        if name not in self.files:
            raise Fault(404, "NotFound", f"There is no file {name}.")
        keep = "public, max-age=31536000, immutable" if request.path_params["digest"] == self.digest else "no-store"
        return Response(self.files[name], media_type=TYPES[Path(name).suffix], headers={"Cache-Control": keep, "X-Content-Type-Options": "nosniff"})
