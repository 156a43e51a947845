"""python3 -m _guest.channel PORT: a root service that answers the host over a virtio port: who this machine is, the time, commands.

A line of JSON in, `{"id", "op", ...}`, a line out with the same id. Nothing else in the guest may open the port.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .renewal import Link

RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207
SIOCSIFHWADDR, ARPHRD_ETHER = 0x8924, 1
TOKEN, MACHINE_ID, HOSTS = "/run/gymctl/token", "/etc/machine-id", "/etc/hosts"
SSH_KEY = "/etc/ssh/ssh_host_ed25519_key"
LARGEST_LINE = 64 << 20
SERVER = Link()


class Port:
    """The virtio port. It reads as ended while nobody on the host is there, so it is waited for by edges: a level would be up all the time."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._edges = select.epoll()
        self._edges.register(self._fd, select.EPOLLIN | select.EPOLLET)
        self._writing = threading.Lock()
        self._buffer = b""

    def lines(self) -> Any:
        """The host's lines, for ever; what one who went away left half said is dropped."""
        while True:
            try:
                chunk = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                self._edges.poll()
                continue
            if not chunk:
                self._buffer = b""
                self._edges.poll()
                continue
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            yield from lines
            if len(self._buffer) > LARGEST_LINE:
                self._buffer = b""

    def say(self, document: dict[str, Any]) -> None:
        """Answer in one line."""
        data = json.dumps(document).encode() + b"\n"
        ready = select.poll()
        ready.register(self._fd, select.POLLOUT)
        with self._writing:
            while data:
                try:
                    data = data[os.write(self._fd, data) :]
                except BlockingIOError:
                    ready.poll(1000)


def identity(asked: dict[str, Any]) -> dict[str, Any]:
    """Become a machine of one's own: time, random numbers, names, network address, keys, token. Only what nobody may see as it was comes before the answer."""
    if asked.get("time") is not None:
        time.clock_settime(time.CLOCK_REALTIME, float(asked["time"]))
    _reseed(base64.b64decode(asked["entropy"]))
    _set_address(bytes.fromhex(asked["mac"].replace(":", "")))
    socket.sethostname(asked["hostname"])
    _write(MACHINE_ID, f"{asked['machine_id']}\n", flags=os.O_WRONLY)  # as long as the one before: in its place, which costs no change of the disk's tables
    _forget_keys()
    told = SERVER.ask({"token": asked["token"], "hostname": asked["hostname"]})
    return {"time": time.time(), "server": told}


def lasting(asked: dict[str, Any]) -> None:
    """The rest of an identity: what is read when something is started anew."""
    _write(TOKEN, asked["token"], 0o600)
    _write(HOSTS, f"127.0.0.1 localhost {asked['hostname']}\n")
    _write("/etc/hostname", f"{asked['hostname']}\n")


def _reseed(entropy: bytes) -> None:
    pool = os.open("/dev/urandom", os.O_WRONLY)
    fcntl.ioctl(pool, RNDADDENTROPY, struct.pack(f"ii{len(entropy)}s", len(entropy) * 8, len(entropy), entropy))
    fcntl.ioctl(pool, RNDRESEEDCRNG)
    os.close(pool)


def _set_address(address: bytes) -> None:
    name = next((name for name in os.listdir("/sys/class/net") if os.path.exists(f"/sys/class/net/{name}/device")), None)
    if name:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFHWADDR, struct.pack("16sH6s8x", name.encode(), ARPHRD_ETHER, address))


def _forget_keys() -> None:
    """They are made anew when somebody connects; a server that has the old ones in its memory ends, and is started then."""
    for name in (SSH_KEY, f"{SSH_KEY}.pub"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(Path("/run/sshd.pid").read_text()), signal.SIGTERM)


def _write(path: str, content: str, mode: int = 0o644, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> None:
    """Plainly: after a restore every line of code is new to the emulated processor."""
    file = os.open(path, flags, mode)
    os.write(file, content.encode())
    os.close(file)


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """A command; at its deadline its whole group is killed."""
    try:
        child = subprocess.Popen(
            asked["argv"], env={**os.environ, **asked.get("env", {})}, cwd="/root", start_new_session=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL if asked.get("input") is None else subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError:
        return {"code": 127, "stdout": "", "stderr": f"{asked['argv'][0]}: not found\n", "timed_out": False}
    with child:
        try:
            out, err = child.communicate(asked.get("input"), timeout=float(asked["seconds"]))
            timed_out = False
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            timed_out = True
        return {"code": child.returncode, "stdout": out, "stderr": err, "timed_out": timed_out}


def prepare(asked: dict[str, Any]) -> dict[str, Any]:
    """Ready to be saved: no key is down, and all that was written is on the disk."""
    told = SERVER.ask({"release": True})
    os.sync()
    return {"server": told}


OPERATIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ping": lambda asked: {"time": time.time()}, "identity": identity, "run": run, "prepare": prepare,
}  # fmt: skip


def answer(port: Port, line: bytes) -> None:
    """Do what a line asks for."""
    asked: Any = None
    try:
        asked = json.loads(line)
        port.say({"id": asked["id"], **OPERATIONS[asked["op"]](asked)})
        if asked["op"] == "identity":
            lasting(asked)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.SubprocessError) as error:
        number = asked.get("id") if isinstance(asked, dict) else None
        port.say({"id": number, "error": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Serve the port; commands, which may take long, in threads."""
    port = Port(sys.argv[1])
    for line in port.lines():
        if b'"run"' in line:
            threading.Thread(target=answer, args=(port, line), daemon=True).start()
        else:
            answer(port, line)


if __name__ == "__main__":
    main()
