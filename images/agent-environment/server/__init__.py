"""The tool servers of one office behind one port: HTTP, MCP, sessions in SQLite."""

import sys
from pathlib import Path

__version__ = "0.1.0"

_SHARED = str(Path(__file__).resolve().parents[2])  # _server and _verify, shared by several images, are beside this image's folder
if _SHARED not in sys.path:
    sys.path.append(_SHARED)
