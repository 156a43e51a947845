"""Calendr: a calendar of several people in the browser."""

import sys
from pathlib import Path

__version__ = "0.1.0"

_SHARED = str(Path(__file__).resolve().parents[2])  # _web, _server and _verify, shared by several images, are beside this image's folder
if _SHARED not in sys.path:
    sys.path.append(_SHARED)
