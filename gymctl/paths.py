"""Where things are: state, cache and runtime directories, and the recipes and images that come with gymctl."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gymctl.errors import Unavailable

STATE_VARIABLE = "GYMCTL_STATE_DIR"
CACHE_VARIABLE = "GYMCTL_CACHE_DIR"
RUNNER_VARIABLE = "GYMCTL_RUNNER"
DEBUG_VARIABLE = "GYMCTL_DEBUG"
NOVNC_VARIABLE = "GYMCTL_NOVNC"

LONGEST_RUNTIME = 32
"""Bytes of a runtime directory that leave room, within a socket's 108, for our names and for those that a browser appends."""

VARIABLES = {
    RUNNER_VARIABLE: "the runner to use where --runner is left out; `auto` for the first that works here",
    STATE_VARIABLE: "where instances and kept episodes live (default: the user's state folder)",
    CACHE_VARIABLE: "where what can be made or fetched again lives (default: the user's cache folder)",
    NOVNC_VARIABLE: "the folder of noVNC for `gymctl view` (default: /usr/share/novnc, where Debian's package puts it)",
    DEBUG_VARIABLE: "1 prints the trace of a fault in gymctl",
    "GYMCTL_URL": "set for an agent: where the environment serves",
    "GYMCTL_SESSION": "set for an agent: its session",
    "GYMCTL_TOKEN": "set for an agent: the instance's token, where its kind asks for one",
    "GYMCTL_LABEL": "set for everything that is started: whose it is",
    "XDG_RUNTIME_DIR": "where sockets of helpers live, as long as it is short (default: a folder of this user in /tmp)",
    "DOCKER_HOST": "the Docker engine's address (runner docker)",
    "DOCKER_TLS_VERIFY, DOCKER_CERT_PATH": "how to speak TLS with an engine on another machine, as the docker command has it",
    "HTTPS_PROXY, NO_PROXY, PIP_*": "handed to pip where packages are installed; gymctl itself speaks to instances and engines without a proxy",
    "CI": "set: nothing is redrawn in place, also on a terminal",
    "NO_COLOR": "no colors on a terminal (nor with TERM=dumb)",
}
"""Every variable that is read or set, for README's table."""


def state_dir() -> Path:
    """Instances live here, one directory each; made when missing, only for this user."""
    return _directory(STATE_VARIABLE, "user_state_path")


def cache_dir() -> Path:
    """Bytes that can be made or fetched again."""
    return _directory(CACHE_VARIABLE, "user_cache_path")


def cache_id() -> str:
    """The same for this cache directory: what an engine keeps for it."""
    import hashlib

    return hashlib.sha256(os.fsencode(cache_dir())).hexdigest()[:12]


def instances_dir() -> Path:
    """The directory that holds one directory an instance."""
    return _made(state_dir() / "instances")


def state_id() -> str:
    """12 hex digits that stand for this state directory in labels: two users or two state directories never mix."""
    import hashlib  # loads OpenSSL: most commands need no label

    return hashlib.sha256(os.fsencode(state_dir())).hexdigest()[:12]


def runtime_dirs(name: str) -> list[Path]:
    """Where an instance's processes have sockets and temp files, removed when it ends: all of them, or by `NAME/PART` those of a part."""
    prefix = _runtime_prefix(name)
    return sorted(_runtime_base().glob(f"{prefix}*" if "/" in name else f"{prefix.removesuffix('-')}[.-]*"))


def make_runtime_dir(name: str) -> Path:
    """A new one for an instance's helper, or by `NAME/PART` for a part of it, for this user only; earlier ones of the same go.

    A short path: a socket's holds 108 bytes at the most.
    """
    import tempfile

    base = _runtime_base()
    if base != Path(os.environ.get("XDG_RUNTIME_DIR", "")):
        _private(_made(base))
    for earlier in _runtime_base().glob(f"{_runtime_prefix(name)}*"):
        shutil.rmtree(earlier, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(prefix=_runtime_prefix(name), dir=base))
    except OSError as error:
        raise Unavailable(f"cannot make a directory in {base}: {error.strerror}", hint="set XDG_RUNTIME_DIR to a directory of your own") from error


def _runtime_prefix(name: str) -> str:
    import hashlib

    instance, dot, part = name.partition("/")
    return f"gymctl-{hashlib.sha256(f'{state_id()}/{instance}'.encode()).hexdigest()[:12]}{'.' if dot else ''}{part}-"


def _runtime_base() -> Path:
    """XDG_RUNTIME_DIR, or a folder in /tmp where that is not set or too long."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(given) if given and len(os.fsencode(given)) <= LONGEST_RUNTIME else Path(f"/tmp/gymctl-{os.getuid()}")  # noqa: S108  (checked: ours, 0700)


def _private(path: Path) -> Path:
    """The same path, when nobody else can write there."""
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or path.is_symlink():
        raise Unavailable(f"{path} is not a directory of this user alone", hint="remove it, or set XDG_RUNTIME_DIR to a directory of your own")
    return path


def bundled(kind: str) -> Path:
    """The directory of `recipes`, `images` or `completions` that came with gymctl, in a wheel or in a checkout."""
    package = Path(__file__).resolve().parent
    for root in (package, package.parent):
        if (root / kind).is_dir():
            return root / kind
    raise Unavailable(f"this installation of gymctl has no {kind}", hint="install it again: pip install --force-reinstall gymctl")


def _directory(variable: str, default: str) -> Path:
    chosen = os.environ.get(variable)
    if chosen:
        return _made(Path(chosen).expanduser().absolute())
    import platformdirs

    try:
        path: Path = getattr(platformdirs, default)("gymctl", appauthor=False).absolute()
    except RuntimeError as error:  # no HOME and no passwd entry
        raise Unavailable("there is no home directory", hint=f"set HOME, or {variable}=/some/directory") from error
    return _made(path)


def _made(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"cannot make {path}: {error.strerror}", hint=f"set {STATE_VARIABLE} and {CACHE_VARIABLE} to directories that can be written"
        ) from error
    return path
