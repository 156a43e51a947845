"""python3 -m _guest.desktop: a whole desktop as processes of one session: X (Xvnc), session bus, window manager, panel, and the guest's server.

In a container it is process 1; on a host it is what runner `local` starts. When it ends, however it ends, all of them end.
Its settings are environment variables; see README.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent.parent))  # it is also started by its path
from _guest import needs, uinput, xauthority

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_DUMPABLE = 4
STOP_SECONDS = 3.0
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
BUS_LAUNCHER = ("/usr/libexec/at-spi-bus-launcher", "--launch-immediately", "--a11y=1")
OPENBOX_NAMESPACE = "http://openbox.org/3.4/rc"
OPENBOX = Path("/etc/xdg/openbox/rc.xml")
KEPT_KEYS = ("A-F4", "A-Tab", "A-S-Tab")
PROGRAMS: tuple[tuple[str, ...], ...] = (("openbox",), ("tint2",), ("pcmanfm", "--desktop"))
"""The window manager (needed), the panel and the desktop's icons (left out, with a line in the log, where they are not installed)."""
OURS = (
    "GUEST_TOKEN",
    "GUEST_TOKEN_FD",
    "GUEST_TOKEN_FILE",
    "X_SERVER",
    "VNC_PASSWORD",
    "VNC_PORT",
    "LISTEN_FD",
    "HOST",
    "PORT",
    "RESOLUTION",
    "DESKTOP_USER",
    "NOTIFY_SOCKET",
    "RUNTIME_DIRECTORY",
    "RENEWAL",
    "DATA_DIR",
)
RESTARTS = 5


class Desktop:
    """The processes of one desktop, by name."""

    def __init__(self, folder: Path, user: pwd.struct_passwd | None) -> None:
        self._folder = folder
        self._user = user
        self._processes: dict[int, tuple[str, Callable[[], int] | None, int]] = {}
        self.env = _environment(folder, user)
        self._keyboard = _keyboard(user)
        # The number is read before a child is made: in a child, little is allowed.
        self._prctl = ctypes.CDLL("libc.so.6").prctl

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        again: bool = False,
        env: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
        root: bool = False,
        **more: Any,
    ) -> int:
        """Start a process that dies with this one; `again`: start it anew when it ends; `root`: with our rights, not the user's."""
        if self._user and os.getuid() == 0 and not root:
            groups = os.getgrouplist(self._user.pw_name, self._user.pw_gid)
            more |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": groups}
        child = subprocess.Popen(
            list(argv), env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, pass_fds=fds, start_new_session=True, preexec_fn=self._die_with_us, **more
        )
        restart = (lambda: self.spawn(name, argv, again, env, fds, root, **more)) if again else None
        used = next((n for label, _, n in self._processes.values() if label == name), 0)
        self._processes[child.pid] = (name, restart, used)
        return child.pid

    def _die_with_us(self) -> None:
        self._prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def start_x(self) -> None:
        """Xvnc on a free display, with a cookie; returns when it accepts connections."""
        cookie = secrets.token_bytes(16)
        self._private("Xauthority", xauthority.entry(cookie, xauthority.WILD))
        resolution = os.environ.get("RESOLUTION", "1920x1080")
        if not re.fullmatch(r"[1-9]\d{1,4}x[1-9]\d{1,4}", resolution):
            sys.exit(f"RESOLUTION={resolution!r} is no size: 1920x1080")
        read, write = os.pipe()
        common = ["-displayfd", str(write), "-auth", self.env["XAUTHORITY"], "-nolisten", "tcp", "-noreset", "-s", "0"]
        if os.environ.get("X_SERVER", "Xvnc") == "Xorg":
            self.spawn("X", ["/usr/lib/xorg/Xorg", *common, "vt7", "-keeptty", "-background", "none", "-logfile", "/dev/null"], fds=[write], root=True)
        else:
            # Who only looks whether it greets counts as a failed login; a password that nobody guesses needs no lockout.
            shared = ["-geometry", resolution, "-depth", "24", "-AlwaysShared", "-AcceptSetDesktopSize=0", "-SetPrimary=0", "-BlacklistThreshold=1000000"]
            self.spawn("X", ["Xvnc", *common, *shared, *self._vnc()], fds=[write])
        os.close(write)
        with os.fdopen(read) as told:
            number = told.readline().strip()
        if not number:
            sys.exit("Xvnc ended before it had a display; its lines are above")
        self.env["DISPLAY"] = f":{number}"
        # Some clients (python-xlib) only look for this host and this display.
        self._private("Xauthority", xauthority.entry(cookie, xauthority.LOCAL, socket.gethostname(), number) + xauthority.entry(cookie, xauthority.WILD))

    def _vnc(self) -> list[str]:
        """VNC with a password on a port, or none at all."""
        password, port = os.environ.get("VNC_PASSWORD"), os.environ.get("VNC_PORT", "")
        if not password or not port:
            return ["-rfbport", "-1", "-SecurityTypes", "None"]
        made = subprocess.run([shutil.which("vncpasswd") or "vncpasswd", "-f"], input=f"{password}\n".encode(), capture_output=True, check=True)
        file = self._private("vnc", made.stdout)
        near = [] if os.environ.get("HOST") == "0.0.0.0" else ["-localhost"]  # noqa: S104  # a container's own interface
        return ["-rfbport", port, "-SecurityTypes", "VncAuth", "-PasswordFile", str(file), *near]

    def _private(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.touch(0o600)
        path.write_bytes(content)
        if self._user and os.getuid() == 0:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)
        return path

    def window_manager(self) -> list[str]:
        """openbox with its own settings, less most of its keys: it grabs them all anew, for a second, whenever a key is given another character."""
        ElementTree.register_namespace("", OPENBOX_NAMESPACE)
        tree = ElementTree.parse(OPENBOX)  # noqa: S314  # the distribution's file
        keyboard = tree.getroot().find(f"{{{OPENBOX_NAMESPACE}}}keyboard")
        for binding in list(keyboard) if keyboard is not None else []:
            if keyboard is not None and binding.get("key") not in KEPT_KEYS:
                keyboard.remove(binding)
        return ["openbox", "--config-file", str(self._private("openbox.xml", ElementTree.tostring(tree.getroot())))]

    def start_bus(self) -> None:
        """The session bus and, on it, accessibility."""
        read, write = os.pipe()
        address = f"--address=unix:path={self._folder}/bus"  # among its private files, not in /tmp
        self.spawn("bus", ["dbus-daemon", "--session", "--nofork", "--nopidfile", address, f"--print-address={write}"], fds=[write])
        os.close(write)
        with os.fdopen(read) as told:
            self.env["DBUS_SESSION_BUS_ADDRESS"] = told.readline().strip()

    def start_server(self) -> None:
        """The guest's server; the token, read anew each time, goes through a pipe, for the environment of a process can be read."""

        def start() -> int:
            read, write = os.pipe()
            os.write(write, _token().encode())
            os.close(write)
            passed = {name: os.environ[name] for name in ("HOST", "PORT", "LISTEN_FD", "RENEWAL") if name in os.environ}
            listen = [int(passed["LISTEN_FD"])] if "LISTEN_FD" in passed else []
            env = {**passed, "GUEST_TOKEN_FD": str(read), "DESKTOP_CLASSES": " ".join(p[0] for p in PROGRAMS[1:] if shutil.which(p[0]))}
            keyboard = [] if self._keyboard is None else [self._keyboard]
            if keyboard:
                env["UINPUT_FD"] = str(keyboard[0])
            pid = self.spawn("server", ["/usr/bin/python3", "-m", "_guest"], env=env, fds=[read, *listen, *keyboard], cwd=Path(__file__).parent.parent)
            os.close(read)
            name, _, used = self._processes[pid]
            self._processes[pid] = (name, start, used)
            return pid

        start()

    def watch(self) -> int:
        """Reap until X ends or a signal comes; programs that ended are started anew a few times."""
        while True:
            pid, status = os.wait()
            if pid not in self._processes:
                continue  # an orphan of the session, when this is process 1
            name, restart, used = self._processes.pop(pid)
            _log(f"{name} ended with {os.waitstatus_to_exitcode(status)}")
            if name == "X":
                return 1
            if restart and used < RESTARTS:
                new = restart()
                self._processes[new] = (*self._processes[new][:2], used + 1)

    def stop(self) -> None:
        """TERM for every session, and KILL for whatever is left of what was ever started here."""
        for pid in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGTERM)
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)
        with contextlib.suppress(InterruptedError, ChildProcessError):
            while self._processes:
                self._processes.pop(os.wait()[0], None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        end_descendants()


def end_descendants() -> None:
    """KILL for all descendants; orphans have become our children, so in the end there are none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _descendants():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.wait()


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [os.getpid()]
    while todo:
        own = children.get(todo.pop(), [])
        found += own
        todo += own
    return found


def _interrupt(number: int, frame: Any) -> None:
    raise InterruptedError


def _ended(number: int, frame: Any) -> None:
    for each in ENDS:  # a second one, to the whole group above all, must not break off the end
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(0)


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  # the instance's log


def _environment(folder: Path, user: pwd.struct_passwd | None) -> dict[str, str]:
    """What the session's programs see: ours without secrets, the user's home, accessibility on."""
    env = {k: v for k, v in os.environ.items() if k not in OURS}
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if env.get("LANG", "C") in ("C", "POSIX") or not env.get("LANG"):
        env["LANG"] = "C.UTF-8"
    if user:
        env |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}
    elif data := os.environ.get("DATA_DIR"):
        env["HOME"] = str(_home(Path(data) / "home"))
    return env | {
        "XAUTHORITY": str(folder / "Xauthority"), "XDG_RUNTIME_DIR": str(folder), "XDG_SESSION_TYPE": "x11", "XDG_CURRENT_DESKTOP": "LXDE",
        "GNOME_ACCESSIBILITY": "1", "QT_ACCESSIBILITY": "1", "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1", "SAL_USE_VCLPLUGIN": "gtk3",
        "QTWEBENGINE_DISABLE_SANDBOX": "1", "QTWEBENGINE_CHROMIUM_FLAGS": "--force-renderer-accessibility", "NO_AT_BRIDGE": "0",
    }  # fmt: skip


def _home(home: Path) -> Path:
    """A home of its own on a host that has other users' programs too: made anew, as the image's user has it (its settings are in `config`, where we start)."""
    shutil.rmtree(home, ignore_errors=True)
    for name in ("Desktop", "Documents", "Downloads"):
        (home / name).mkdir(parents=True)
    if Path("config").is_dir():
        shutil.copytree("config", home / ".config")
    return home


def _folder(user: pwd.struct_passwd | None) -> Path:
    made = Path(tempfile.mkdtemp(prefix="desktop-", dir=os.environ.get("RUNTIME_DIRECTORY")))
    if user and os.getuid() == 0:
        os.chown(made, user.pw_uid, user.pw_gid)
    return made


def _keyboard(user: pwd.struct_passwd | None) -> int | None:
    """A keyboard in the kernel, where a machine has its own X server on it; it is there before X is, and stays when the server is started anew."""
    if os.environ.get("X_SERVER") != "Xorg" or not user or os.getuid() != 0:
        return None
    try:
        return uinput.create()
    except OSError as error:
        _log(f"no keyboard in the kernel: {error.strerror}")
        return None


def _token() -> str:
    file = os.environ.get("GUEST_TOKEN_FILE")
    try:
        found = Path(file).read_text().strip() if file else os.environ.get("GUEST_TOKEN", "")
    except OSError as error:
        sys.exit(f"GUEST_TOKEN_FILE {file}: {error.strerror}")
    return found or sys.exit("no token: GUEST_TOKEN or GUEST_TOKEN_FILE, a random text of at least 16 characters")


def main() -> int:
    """The desktop in a child, so that either ends all when the other one is killed; the desktop's exit code."""
    if complaint := needs.complaint(sys.argv[1:]):
        sys.exit(complaint)
    libc = ctypes.CDLL("libc.so.6")
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no program of the desktop, which is the same user, reads the token out of here
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in ENDS:
        signal.signal(number, _ended)
    child = os.fork()
    if not child:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return desktop()
    try:
        while (ended := os.wait())[0] != child:
            pass
        return os.waitstatus_to_exitcode(ended[1])
    except SystemExit:
        os.kill(child, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        raise
    finally:
        end_descendants()


def desktop() -> int:
    """Start everything, stay until it ends."""
    _token()  # without one nothing starts: it is read again by each server
    name = os.environ.get("DESKTOP_USER")
    user = pwd.getpwnam(name) if name else None
    folder = _folder(user)
    session = Desktop(folder, user)
    try:
        session.start_x()
        session.start_bus()
        if Path(BUS_LAUNCHER[0]).exists():
            session.spawn("accessibility", BUS_LAUNCHER)
        for argv in PROGRAMS:
            if shutil.which(argv[0]):
                session.spawn(argv[0], session.window_manager() if argv is PROGRAMS[0] and OPENBOX.exists() else argv, again=True)
            elif argv is PROGRAMS[0]:
                sys.exit(f"there is no {argv[0]}: install it")
            else:
                _log(f"{argv[0]} is not installed: the desktop has none")
        session.start_server()
        _log(f"desktop on {session.env['DISPLAY']}")
        return session.watch()
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
