"""`python -m gymctl.browser URL DIRECTORY SOCKETS EXECUTABLE READY`: the driver of one instance's browser."""

import asyncio
import sys
from pathlib import Path

from gymctl.browser.driver import Place, serve

if __name__ == "__main__":
    url, directory, sockets, executable, ready = sys.argv[1:]
    asyncio.run(serve(Place(url, Path(directory), Path(sockets), executable), int(ready)))
