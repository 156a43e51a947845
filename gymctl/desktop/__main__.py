"""`python -m gymctl.desktop DIRECTORY INSIDE NOVNC LISTENER`: the viewer of one instance."""

import asyncio
import socket
import sys
from pathlib import Path

from gymctl.desktop.viewer import View, run

if __name__ == "__main__":
    directory, inside, novnc, descriptor = sys.argv[1:]
    listener = socket.socket(fileno=int(descriptor))
    asyncio.run(run(View(Path(directory), int(inside), Path(novnc), listener.getsockname()[1]), listener))
