"""Runner `local`: the environment's server as a plain process of this user, in a session of its own."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gymctl import cache, paths, proc, trees
from gymctl.errors import Conflict, NotFound, StartError, Unavailable, UsageError
from gymctl.proc import LABEL_VARIABLE, Process, Result
from gymctl.runner import Finding, Handle, Need, Plan, Spec, Status

SPEC = Spec(
    name="local",
    summary="Plain processes of this user: no Docker needed, no isolation either",
    guests=("python",),
    formats=("dir",),
    hosts=("linux", "darwin"),
    needs=(Need("python", "install Python 3.11 or newer with venv"),),
    isolated=False,
    notes="The environment runs with your rights, on your network; its resources are not limited.",
)
INSTALL_TIMEOUT = 600
STOP_SECONDS = 15.0
"""What ends by itself leaves nothing behind, and a desktop of ten programs needs a while."""


def start(plan: Plan, /) -> Handle:
    """Bind the port, hand the socket to the server, return. The server's log is `log` in the instance's directory."""
    directory = Path(plan.image["directory"])
    python = _interpreter(directory, plan.image.get("requirements"), plan.told)
    listener, port, note = _bind(plan)
    further = {variable: _free_port() for variable in plan.ports}
    runtime = {"RUNTIME_DIRECTORY": str(paths.make_runtime_dir(_runtime_name(plan.label)))} if plan.secrets else {}
    with listener:
        argv = [python if word == "python" else word for word in plan.image["run"]]
        env = proc.environment({
            **runtime, **plan.env, **plan.secrets, **{variable: str(number) for variable, number in further.items()},
            LABEL_VARIABLE: plan.label, "LISTEN_FD": str(listener.fileno()), "PORT": str(port),
            "DATA_DIR": str(plan.directory / "data"), "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1",
            **(_module_path() if python == sys.executable else {}),
        })  # fmt: skip
        process = proc.spawn(argv, env=env, cwd=directory, log=plan.directory / "log", pass_fds=[listener.fileno()])
    return {
        "pid": process.pid, "started": process.started, "label": plan.label, "log": str(plan.directory / "log"), "home": str(plan.directory / "data" / "home"),
        "url": f"http://127.0.0.1:{port}", "ports": {str(plan.port): port, **{str(plan.ports[variable]): number for variable, number in further.items()}},
        "notes": [note] if note else [],
    }  # fmt: skip


def _bind(plan: Plan) -> tuple[socket.socket, int, str]:
    """A listening socket on 127.0.0.1, its port, and a note when it is not the documented one."""
    wanted = plan.port if plan.host_port is None else plan.host_port
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    note = ""
    try:
        listener.bind(("127.0.0.1", wanted))
    except OSError as error:
        if plan.host_port is not None:
            listener.close()
            raise _port_error(wanted, error) from error
        note = f"port {wanted} is taken, so another was chosen"
        listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener, listener.getsockname()[1], note


def _free_port() -> int:
    """A port of 127.0.0.1 that nobody holds now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _port_error(port: int, error: OSError) -> Exception:
    if error.errno == errno.EADDRINUSE:
        holder = proc.listener(port)
        return Conflict(f"port {port} is taken{f' by {holder}' if holder else ''}", hint="`--port 0` takes any free one")
    if error.errno == errno.EACCES:
        return Unavailable(f"port {port} may only be opened by root", hint="`--port 0` takes any free one")
    return StartError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}", hint="`--port 0` takes any free one")


def _interpreter(directory: Path, requirements: str | None, told: Callable[[str], None]) -> str:
    """This interpreter when it has what the server needs, else that of a cached venv that has."""
    if requirements is None:
        return sys.executable
    file = directory / requirements
    wanted = [line.strip() for line in file.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if all(map(_satisfied, wanted)):
        return sys.executable
    key = cache.key(what="venv", python=sys.version, executable=os.path.realpath(sys.executable), requirements=sorted(wanted))
    told(f"installing what {directory.name} needs into a venv in the cache, once")
    tree = cache.get_or_make(key, lambda path: _make_venv(path, file), note={"what": f"venv for {directory.name}"}, waiting=told)
    return str(tree / "bin" / "python")


def _module_path() -> dict[str, str]:
    """PYTHONPATH, where this interpreter has one: what it satisfies may come from there."""
    given = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, given.split(os.pathsep)))} if given else {}


def _satisfied(line: str) -> bool:
    from packaging.requirements import Requirement

    requirement = Requirement(line)
    if requirement.marker and not requirement.marker.evaluate():
        return True
    try:
        return requirement.specifier.contains(importlib.metadata.version(requirement.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


def _make_venv(path: Path, requirements: Path) -> None:
    """A venv at `path` (moved later: only its python is used, never its scripts) with the requirements installed."""
    made = proc.run([sys.executable, "-P", "-m", "venv", str(path)], timeout=120)
    if made.code:
        raise Unavailable(f"cannot make a venv: {_last_line(made)}", hint="install Python's venv module (Debian: python3-venv)")
    argv = [str(path / "bin" / "python"), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", str(requirements)]
    installed = proc.run(argv, timeout=INSTALL_TIMEOUT, env=proc.pip_environment())
    if installed.code:
        hint = f"try it by hand: {sys.executable} -m pip install -r {requirements}"
        raise Unavailable(f"cannot install {requirements}: {_last_line(installed)}", hint=hint)


def _last_line(result: Result) -> str:
    lines = (result.stderr or result.stdout).strip().splitlines()
    return "no answer in time" if result.timed_out else lines[-1] if lines else f"exit code {result.code}"


def status(handle: Handle, /) -> Status:
    """running, or exited (the exit code is known only to the gymctl that started it)."""
    process = _process(handle)
    if proc.alive(process):
        return Status("running")
    code = proc.reap(process)
    tail = list(logs(handle))[-5:]
    return Status("exited", code, detail="; ".join(line.strip() for line in tail if line.strip()))


def stop(handle: Handle, /) -> None:
    """End the server's whole group, and whatever else carries its label, but helpers (`spared`) that outlast a start anew; its sockets go."""
    proc.end_group(_process(handle), grace=STOP_SECONDS)
    proc.end_labeled(handle["label"], spared=handle.get("spared", ()))
    for directory in paths.runtime_dirs(_runtime_name(handle["label"])):
        shutil.rmtree(directory, ignore_errors=True)


def find() -> dict[str, Handle]:
    """Our servers that run, by label: the first process of each, which ends all that it has started."""
    found: dict[str, Handle] = {}
    for label, process in sorted(proc.labeled(f"{paths.state_id()}/"), key=lambda row: (row[1].started, row[1].pid)):
        if label not in found:
            found[label] = {"pid": process.pid, "started": process.started, "label": label, "log": "", "url": "", "ports": {}}
    return found


def exec(handle: Handle, argv: list[str], /, *, input: str | None = None, timeout: float = 60) -> Result:
    """Run a command beside the server, as this user."""
    return proc.run(argv, input=input, timeout=timeout, env=proc.environment({LABEL_VARIABLE: handle["label"]}))


def put(handle: Handle, src: Path, dst: str, /) -> None:
    """Copy into the instance's own home, where a desktop's programs have theirs; nothing else of this machine is the instance's. UsageError, Conflict."""
    trees.copy(src, _in_home(handle, dst))


def get(handle: Handle, src: str, dst: Path, /) -> None:
    """Copy out of the instance's own home. NotFound, UsageError, Conflict."""
    trees.copy(_in_home(handle, src), dst)


def _in_home(handle: Handle, path: str) -> Path:
    """A path in the instance's home: a relative one, or an absolute one that leads there. Links on the way are followed first."""
    if not handle.get("home"):
        raise NotFound("the record of this instance does not say where its home is")
    home = Path(handle["home"]).resolve()
    found = Path(os.path.realpath(home / path.removeprefix("~/")))
    if not found.is_relative_to(home) or found == home:
        raise UsageError(f"{path} is not in the instance's home, {home}", hint="runner local runs on this machine: reach other files with its own commands")
    return found


def logs(handle: Handle, /) -> Iterator[str]:
    """What the server printed so far."""
    with contextlib.suppress(OSError), open(handle["log"], encoding="utf-8", errors="replace") as file:
        yield from file


def doctor(workdir: Path, /) -> Iterator[Finding]:
    """Start a process and let it listen; look for venv."""
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])"
    started = proc.run([sys.executable, "-P", "-c", listen], timeout=20)
    if started.code == 0 and started.stdout.strip().isdigit():
        yield Finding("process", True, "a Python process starts and listens on 127.0.0.1")
    else:
        yield Finding("process", False, _last_line(started), "check this Python installation")
    venv = proc.run([sys.executable, "-P", "-c", "import venv, ensurepip"], timeout=20)
    fix = "" if venv.code == 0 else "install Python's venv module (Debian: apt-get install python3-venv)"
    yield Finding("venv", venv.code == 0, "venv and ensurepip are there" if venv.code == 0 else _last_line(venv), fix)
    if sys.platform == "linux":
        told = Path("/proc/self/environ").exists()
        yield Finding("adoption", told, "/proc tells whose a process is" if told else "there is no /proc", "" if told else "mount /proc")
    else:
        yield Finding("adoption", None, "no /proc: processes of a killed gymctl are not found again")


def _runtime_name(label: str) -> str:
    """Apart from the folder of the instance's helpers, which come and go while it runs."""
    return f"{label.partition('/')[2]}/server"


def _process(handle: Handle) -> Process:
    return Process(handle["pid"], handle["started"])
