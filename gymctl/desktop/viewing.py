"""How `gymctl view` shows a desktop: starts the instance's viewer, once, and makes an address that lets one in."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gymctl import paths, proc
from gymctl.desktop import vnc
from gymctl.episode import Json
from gymctl.errors import Unavailable

if TYPE_CHECKING:
    from gymctl.instances import Instance

INSTALLED = Path("/usr/share/novnc")
ENTRY = Path("core/rfb.js")


def show(instance: Instance) -> Json:
    """{url, port, vnc, password}: a page for a person, good once, and the same for a VNC viewer. Unavailable, Unsupported."""
    inside = vnc.number(instance.directory)
    where = vnc.address(instance.directory, inside)
    vnc.check(where, instance.name)
    novnc = _novnc(where)
    port = _viewer(instance, inside, novnc)
    token = secrets.token_urlsafe(24)
    folder = instance.directory / "view"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / hashlib.sha256(token.encode()).hexdigest()).touch(0o600)
    return {"url": f"http://127.0.0.1:{port}/?token={token}", "port": port, "vnc": where.url, "password": where.password}


def _novnc(where: vnc.Address) -> Path:
    """noVNC's folder, with all that is needed to serve it; Unavailable says what is lacking, and where a viewer of one's own connects."""
    given = os.environ.get(paths.NOVNC_VARIABLE)
    folder = Path(given) if given else INSTALLED
    otherwise = f"a VNC viewer of your own shows {where.url}, password {where.password}"
    if not (folder / ENTRY).is_file():
        what = f"{paths.NOVNC_VARIABLE}={given} is not noVNC: there is no {ENTRY}" if given else f"noVNC is not installed: there is no {folder}"
        raise Unavailable(what, hint=f"Debian, Ubuntu: apt-get install novnc; or {paths.NOVNC_VARIABLE}=DIRECTORY of noVNC's sources; {otherwise}")
    if importlib.util.find_spec("websockets") is None:
        raise Unavailable("the Python package websockets is not installed", hint=f"pip install 'gymctl[view]'; {otherwise}")
    return folder.resolve()


def _viewer(instance: Instance, inside: int, novnc: Path) -> int:
    """The port of the instance's viewer, which is started when there is none."""
    with instance.changing():
        for helper in instance.helpers:
            if helper["what"] == "view" and proc.alive(proc.Process(helper["pid"], helper["started"])):
                return int(helper["port"])
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
            argv = [sys.executable, "-m", "gymctl.desktop", str(instance.directory), str(inside), str(novnc), str(listener.fileno())]
            env, log = proc.module_environment(instance.label), instance.directory / "view.log"
            process = proc.spawn(argv, env=env, cwd=instance.directory, log=log, pass_fds=[listener.fileno()])
        mine = {"what": "view", "pid": process.pid, "started": process.started, "label": instance.label, "port": port}
        instance.helpers = [*(helper for helper in instance.helpers if helper["what"] != "view"), mine]
        return port
