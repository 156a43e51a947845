"""Runner docker on a real engine: what the contract says, and each way it can go wrong."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymctl import paths
from gymctl.errors import Conflict, EnvError, GymctlError, NotFound, StartError, Unavailable, UsageError
from gymctl.runner import Handle, Images, Plan
from gymctl.runners import docker as runner
from gymctl.runners import docker_engine
from tests.conftest import ROOT, lacking
from tests.engine import docker_call


@pytest.fixture
def plan(docker: str, python_image: str, tmp_path: Path) -> Plan:
    """A plan for the image with Python, on any port."""
    return Plan("one", f"{paths.state_id()}/one", tmp_path, "oci", {"ref": python_image}, 8000, 0)


def named(plan: Plan, name: str, **changes: Any) -> Plan:
    return replace(plan, name=name, label=f"{paths.state_id()}/{name}", **changes)


@pytest.fixture
def commanded(docker: str, python_image: str) -> Callable[..., str]:
    """An image that runs a shell command."""

    def make(tag: str, command: str, *lines: str) -> str:
        text = "\n".join([f"FROM {python_image}", f"CMD {json.dumps(['sh', '-c', command])}", *lines, ""])
        docker_call(docker, "build", "-q", "-t", f"gymctl-test-{tag}:latest", "-", input=text.encode())
        return f"gymctl-test-{tag}:latest"

    return make


def get(url: str, deadline: float = 15) -> bytes:
    """What it answers once it serves."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + deadline
    while True:
        try:
            body: bytes = opener.open(url, timeout=2).read()
            return body
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def until(condition: Callable[[], bool], deadline: float = 20) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def inspect(docker: str, handle: Handle) -> Any:
    return json.loads(docker_call(docker, "inspect", handle["container"]))[0]


def test_a_life(plan: Plan, docker: str) -> None:
    handle = runner.start(plan)
    assert handle == json.loads(json.dumps(handle))
    assert handle["url"] == f"http://127.0.0.1:{handle['ports']['8000']}"
    assert b"Directory listing" in get(handle["url"])
    assert runner.status(handle).state == "running"
    found = runner.find()[plan.label]
    assert found == {name: value for name, value in handle.items() if name != "secrets"} | {"notes": []}
    info = inspect(docker, handle)
    assert info["Config"]["Labels"]["gymctl.label"] == plan.label
    assert info["Name"] == f"/gymctl-{plan.label.replace('/', '-')}"
    assert info["HostConfig"]["PortBindings"]["8000/tcp"][0]["HostIp"] == "127.0.0.1"
    until(lambda: any("GET / HTTP" in line for line in runner.logs(handle)))
    runner.stop(handle)
    runner.stop(handle)
    assert runner.status(handle).state == "gone"
    assert list(runner.logs(handle)) == []
    assert runner.find() == {}


def test_it_keeps_images() -> None:
    assert isinstance(runner, Images)


class TestExec:
    def test_outputs_input_and_code(self, plan: Plan) -> None:
        handle = runner.start(plan)
        program = "import sys; text = sys.stdin.read(); print(len(text)); print('ä', file=sys.stderr); sys.exit(3)"
        done = runner.exec(handle, ["python3", "-c", program], input="ü" * 300_000, timeout=30)
        assert (done.code, done.stdout, done.stderr, done.timed_out) == (3, "300000\n", "ä\n", False)
        assert runner.exec(handle, ["no-such-command"], timeout=30).code == 127

    def test_the_first_bytes_are_never_lost(self, plan: Plan) -> None:
        handle = runner.start(plan)
        for _ in range(10):
            assert runner.exec(handle, ["echo", "first"], timeout=30).stdout == "first\n"

    def test_at_the_deadline_the_whole_command_is_gone(self, plan: Plan) -> None:
        handle = runner.start(plan)
        began = time.monotonic()
        done = runner.exec(handle, ["sh", "-c", "echo begun; sleep 961 & sleep 962"], timeout=1)
        assert done.timed_out
        assert done.stdout == "begun\n"
        assert time.monotonic() - began < 10
        shown = runner.exec(handle, ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], timeout=30).stdout
        assert "961" not in shown.replace("sleep 961 &", "")
        assert "sleep 962" not in shown

    def test_of_a_container_that_ended_or_is_gone(self, plan: Plan, commanded: Callable[..., str]) -> None:
        ended = runner.start(replace(plan, image={"ref": commanded("soon", "sleep 0.3")}))
        until(lambda: runner.status(ended).state == "exited")
        with pytest.raises(EnvError, match="not running"):
            runner.exec(ended, ["true"], timeout=10)
        runner.stop(ended)
        with pytest.raises(NotFound):
            runner.exec(ended, ["true"], timeout=10)


class TestPorts:
    def test_the_documented_one_when_free_else_another_and_a_note(self, plan: Plan, commanded: Callable[..., str]) -> None:
        odd = replace(plan, image={"ref": commanded("odd", "exec python3 -S -E -m http.server 18391")}, port=18391, host_port=None)
        first, second = runner.start(odd), runner.start(named(odd, "two"))
        assert first["ports"] == {"18391": 18391}
        assert first["notes"] == []
        assert second["ports"]["18391"] != 18391
        assert second["notes"] == ["port 18391 is taken, so another was chosen"]
        assert b"listing" in get(second["url"])

    def test_one_that_an_instance_holds(self, plan: Plan) -> None:
        port = runner.start(plan)["ports"]["8000"]
        with pytest.raises(Conflict, match=f"port {port} is taken by the instance one") as caught:
            runner.start(named(plan, "two", host_port=port))
        assert "--port 0" in caught.value.hint
        assert list(runner.find()) == [plan.label]

    def test_one_that_a_process_holds(self, plan: Plan) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
            with pytest.raises(Conflict, match=f"port {port} is taken by pid {os.getpid()} "):
                runner.start(replace(plan, host_port=port))
        assert runner.find() == {}

    def test_one_that_a_foreign_container_holds(self, plan: Plan, docker: str, python_image: str) -> None:
        foreign = docker_call(docker, "run", "-d", "-p", "127.0.0.1::8000", "--name", "gymctl-test-foreign", python_image)
        try:
            port = int(docker_call(docker, "port", foreign, "8000").rpartition(":")[2])
            with pytest.raises(Conflict, match="taken by the container gymctl-test-foreign"):
                runner.start(replace(plan, host_port=port))
        finally:
            docker_call(docker, "rm", "-f", foreign)

    def test_taken_between_the_look_and_the_start(self, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        """The look says free, the engine says taken: another is chosen, and nothing is left of the first try."""
        monkeypatch.setattr(runner, "_free", lambda port: True)
        with socket.create_server(("127.0.0.1", 0)) as held:
            taken = held.getsockname()[1]
            handle = runner.start(replace(plan, port=taken, host_port=None))
        assert handle["ports"][str(taken)] != taken
        assert len(runner.find()) == 1

    def test_twenty_at_once(self, plan: Plan) -> None:
        """Processes of their own, and no network of ours yet: one makes it, all come up, on twenty ports."""
        code = (
            "import sys; from pathlib import Path; from gymctl import paths; from gymctl.runner import Plan; from gymctl.runners import docker\n"
            "n, ref = sys.argv[1:]\n"
            "print(docker.start(Plan(n, f'{paths.state_id()}/{n}', Path('.'), 'oci', {'ref': ref}, 8000, None))['url'])"
        )
        children = [
            subprocess.Popen([sys.executable, "-c", code, f"n{n}", plan.image["ref"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
            for n in range(20)
        ]
        ended = [(*child.communicate(timeout=120), child.returncode) for child in children]
        assert [code for *_, code in ended] == [0] * 20, [err[-300:] for _, err, code in ended if code]
        assert len({out for out, *_ in ended}) == 20
        assert len(runner.find()) == 20
        assert [name for name in networks() if name.startswith("gymctl-closed")] == ["gymctl-closed"]


def networks() -> list[str]:
    return [row["Name"] for row in docker_engine.client().networks()]


class TestNames:
    def test_one_left_by_an_earlier_run_is_said_with_its_age_and_owner(self, plan: Plan) -> None:
        handle = runner.start(plan)
        with pytest.raises(Conflict, match=r"running, made 0:00:\d\d ago, by gymctl for .*/one") as caught:
            runner.start(plan)
        assert "--replace" in caught.value.hint
        assert runner.status(handle).state == "running"

    def test_a_container_without_our_label_is_left_alone(self, plan: Plan, docker: str, python_image: str) -> None:
        name = f"gymctl-{plan.label.replace('/', '-')}"
        foreign = docker_call(docker, "create", "--name", name, python_image)
        try:
            with pytest.raises(Conflict, match="not by this gymctl"):
                runner.start(plan)
            assert docker_call(docker, "inspect", "-f", "{{.Id}}", name) == foreign
            assert runner.find() == {}
        finally:
            docker_call(docker, "rm", "-f", foreign)


class TestLimits:
    def test_options_win_over_the_recipe(self, plan: Plan, docker: str) -> None:
        options = {"memory": "64m", "cpus": 0.5, "pids": 50, "shm_size": "8m", "network": "true"}
        handle = runner.start(replace(plan, options=options, mem_gb=1, cpus=2))
        config = inspect(docker, handle)["HostConfig"]
        assert (config["Memory"], config["NanoCpus"], config["PidsLimit"], config["ShmSize"]) == (64 << 20, 500_000_000, 50, 8 << 20)
        assert config["NetworkMode"] == "bridge"

    def test_the_recipe_s_resources(self, plan: Plan, docker: str) -> None:
        config = inspect(docker, runner.start(replace(plan, mem_gb=0.25, cpus=1)))["HostConfig"]
        assert (config["Memory"], config["NanoCpus"]) == (256 << 20, 1_000_000_000)

    def test_no_size(self, plan: Plan) -> None:
        with pytest.raises(UsageError, match="--opt memory=lots"):
            runner.start(replace(plan, options={"memory": "lots"}))

    @pytest.mark.parametrize("options", [{"memory": "0"}, {"memory": "-1m"}, {"shm_size": "0"}, {"pids": 0}, {"pids": -5}, {"cpus": 0.0}, {"cpus": -1.0}])
    def test_a_limit_that_would_be_none_is_refused(self, plan: Plan, options: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="expected more than 0"):
            runner.start(replace(plan, options=options))

    def test_out_of_memory_names_the_limit_and_the_option(self, plan: Plan, commanded: Callable[..., str]) -> None:
        eater = commanded("eater", "sleep 0.5; exec python3 -c \"x = b'x' * (200 << 20)\"")
        handle = runner.start(replace(plan, image={"ref": eater}, options={"memory": "64m"}))
        until(lambda: runner.status(handle).state == "exited")
        status = runner.status(handle)
        assert (status.exit_code, status.oom) == (137, True)
        assert "64 MiB" in status.detail
        assert "--opt memory=128m" in status.detail


class TestEnds:
    def test_it_exits_by_itself(self, plan: Plan, commanded: Callable[..., str]) -> None:
        handle = runner.start(replace(plan, image={"ref": commanded("bye", "sleep 0.3; echo the last words; exit 3")}))
        until(lambda: runner.status(handle).state == "exited")
        status = runner.status(handle)
        assert (status.exit_code, status.oom, status.detail) == (3, False, "the last words")

    def test_what_cannot_start_leaves_nothing(self, plan: Plan, docker: str, python_image: str) -> None:
        docker_call(docker, "build", "-q", "-t", "gymctl-test-nothing:latest", "-", input=f'FROM {python_image}\nCMD ["/no/such/program"]\n'.encode())
        with pytest.raises(StartError, match="no such file"):
            runner.start(replace(plan, image={"ref": "gymctl-test-nothing:latest"}))
        assert runner.find() == {}

    def test_an_image_that_is_not_there(self, plan: Plan) -> None:
        with pytest.raises(StartError, match="no image gymctl-test-none"):
            runner.start(replace(plan, image={"ref": "gymctl-test-none:latest"}))

    def test_unhealthy_says_why(self, plan: Plan, commanded: Callable[..., str]) -> None:
        check = "HEALTHCHECK --interval=1s --retries=1 CMD echo the check failed; exit 1"
        handle = runner.start(replace(plan, image={"ref": commanded("ill", "sleep 100", check)}))
        until(lambda: "unhealthy: the check failed" in runner.status(handle).detail)
        assert runner.status(handle).state == "running"

    def test_interrupted_while_the_engine_starts_it(self, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(runner, "_begin", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runner.start(plan)
        assert runner.find() == {}


@pytest.fixture
def outside(docker: str) -> Iterator[str]:
    """The address of a listener on the far side of this machine: a network namespace behind a veth pair."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        lacking("docker", "only root can make a network namespace")
    name, far = "gymtest-out", "172.31.249.2"
    for line in (
        f"netns add {name}", "link add gymt-a type veth peer name gymt-b", f"link set gymt-b netns {name}",
        "addr add 172.31.249.1/24 dev gymt-a", "link set gymt-a up",
        f"-n {name} addr add {far}/24 dev gymt-b", f"-n {name} link set gymt-b up",
        f"-n {name} link set lo up", f"-n {name} route add default via 172.31.249.1",
    ):  # fmt: skip
        subprocess.run(["ip", *line.split()], check=True, capture_output=True)
    code = "import socket, time; s = socket.create_server(('0.0.0.0', 7777), backlog=50); print('up', flush=True); time.sleep(600)"
    listener = subprocess.Popen(["ip", "netns", "exec", name, sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert listener.stdout is not None
    listener.stdout.readline()
    yield far
    listener.kill()
    listener.communicate()
    for line in (f"netns del {name}", "link del gymt-a"):
        subprocess.run(["ip", *line.split()], check=False, capture_output=True)


class TestNetwork:
    CONNECT = "import socket; socket.create_connection(('{}', {}), 3); print('reached')"

    def test_closed_by_default_and_still_published(self, plan: Plan, outside: str) -> None:
        closed, opened = runner.start(plan), runner.start(named(plan, "two", network=True))
        assert b"listing" in get(closed["url"])
        reach = ["python3", "-c", self.CONNECT.format(outside, 7777)]
        assert runner.exec(opened, reach, timeout=30).stdout == "reached\n"
        began = time.monotonic()
        refused = runner.exec(closed, reach, timeout=30)
        assert "reached" not in refused.stdout
        assert time.monotonic() - began < 10
        names = runner.exec(closed, ["python3", "-c", "import socket; socket.getaddrinfo('example.com', 80)"], timeout=60)
        assert "gaierror" in names.stderr

    def test_no_program_inside_can_change_that(self, plan: Plan) -> None:
        closed = runner.start(plan)
        for attempt in ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 6)"):
            assert "PermissionError" in runner.exec(closed, ["python3", "-c", f"import socket; {attempt}"], timeout=30).stderr
        effective = runner.exec(closed, ["sh", "-c", "while read -r k v; do [ $k != CapEff: ] || echo $v; done < /proc/self/status"], timeout=30).stdout
        net_admin, net_raw = 12, 13
        assert not int(effective, 16) & (1 << net_admin | 1 << net_raw)

    def test_two_closed_ones_do_not_see_each_other(self, plan: Plan, docker: str) -> None:
        first, second = runner.start(plan), runner.start(named(plan, "two"))
        get(first["url"])
        address = next(iter(inspect(docker, first)["NetworkSettings"]["Networks"].values()))["IPAddress"]
        assert "reached" not in runner.exec(second, ["python3", "-c", self.CONNECT.format(address, 8000)], timeout=30).stdout

    def test_one_of_the_engine_s_networks(self, plan: Plan, docker: str) -> None:
        docker_call(docker, "network", "create", "gymctl-test-net")
        try:
            handle = runner.start(replace(plan, options={"network": "gymctl-test-net"}))
            assert list(inspect(docker, handle)["NetworkSettings"]["Networks"]) == ["gymctl-test-net"]
            runner.stop(handle)
        finally:
            docker_call(docker, "network", "rm", "gymctl-test-net")

    def test_our_network_stays_while_it_is_used_and_goes_after(self, plan: Plan, docker: str) -> None:
        handle = runner.start(plan)
        runner.tidy()
        assert "gymctl-closed" in networks()
        runner.stop(handle)
        runner.tidy()
        # The engine may serve others too, who use it or make it anew.
        until(lambda: "gymctl-closed" not in networks() or docker_call(docker, "ps", "-q", "--filter", "network=gymctl-closed") != "")


def refusal(code: int = 5, **env: str) -> GymctlError:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        with pytest.raises(Unavailable) as caught:
            runner.find()
    assert caught.value.exit_code == code
    assert caught.value.hint
    return caught.value


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """No connection outlives a test."""
    yield
    docker_engine.close()


class TestNoEngine:
    """Each answer names what is missing and one fix; none needs an engine."""

    def test_no_socket(self, tmp_path: Path) -> None:
        error = refusal(DOCKER_HOST=f"unix://{tmp_path}/nope")
        assert "not running: there is no socket" in error.message
        assert "DOCKER_HOST" in error.message

    def test_nobody_listens(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(tmp_path / "s"))
        assert "not running: nobody listens" in refusal(DOCKER_HOST=f"unix://{tmp_path}/s").message

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        monkeypatch.setattr(docker_engine, "SOCKET", str(tmp_path / "nope"))
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(docker_engine, "host", lambda: f"unix://{tmp_path}/nope")
        error = refusal()
        assert "not installed" in error.message
        assert "20.10" in error.hint

    def test_installed_and_not_running(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        (tmp_path / "docker").write_text("#!/bin/sh\n")
        (tmp_path / "docker").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(docker_engine, "host", lambda: f"unix://{tmp_path}/nope")
        error = refusal()
        assert "not running" in error.message
        assert "systemctl start docker" in error.hint

    def test_not_permitted(self) -> None:
        """As another user: the socket's group and the command that joins it."""
        if os.geteuid() != 0:
            lacking("docker", "only root can become another user")
        folder = Path("/tmp") / f"gymctl-test-{os.getpid()}"
        folder.mkdir(mode=0o755)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(folder / "docker.sock"))
                listener.listen()
                (folder / "docker.sock").chmod(0o660)
                with as_nobody():
                    error = refusal(DOCKER_HOST=f"unix://{folder}/docker.sock", GYMCTL_STATE_DIR=str(folder))
        finally:
            shutil.rmtree(folder)
        assert f"may not open the Docker engine's socket {folder}/docker.sock (group root)" in error.message
        assert "usermod -aG root" in error.hint

    def test_older_than_20_10(self, tmp_path: Path) -> None:
        with answering(tmp_path / "old", {"ApiVersion": "1.40", "Version": "19.03.5"}) as host:
            error = refusal(DOCKER_HOST=host)
        assert "version 19.03.5, and 20.10 or newer is needed" in error.message

    def test_newer_speaks_its_own_version(self, tmp_path: Path) -> None:
        """Engines of today refuse 1.41: the version in every path is the engine's."""
        with answering(tmp_path / "new", {"ApiVersion": "1.52", "Version": "29.0"}) as host, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", host)
            assert docker_engine.client().api_version == "1.52"

    @pytest.mark.parametrize("answer", ["hello", [], {"ApiVersion": None}, {"x": 1}])
    def test_no_docker_at_all(self, tmp_path: Path, answer: Any) -> None:
        with answering(tmp_path / "web", answer) as host:
            assert "no Docker engine" in refusal(DOCKER_HOST=host).message

    def test_tcp_refused_and_dropped_are_two_answers(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            refused = refusal(DOCKER_HOST=f"tcp://127.0.0.1:{port}")
            listener.listen(0)
            with filled(port), pytest.MonkeyPatch.context() as patch:
                patch.setattr(docker_engine, "CONNECT_TIMEOUT", 0.5)
                dropped = refusal(DOCKER_HOST=f"tcp://127.0.0.1:{port}")
        assert "refuses the connection" in refused.message
        assert f"no answer from 127.0.0.1:{port}" in dropped.message
        assert f"DOCKER_HOST=tcp://127.0.0.1:{port}" in dropped.message
        assert "firewall may drop" in dropped.hint

    def test_a_name_that_does_not_resolve(self) -> None:
        assert "cannot be resolved" in refusal(DOCKER_HOST="tcp://no-such-host.invalid:2375").message

    def test_doctor_says_so_and_proves_nothing_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nope")
        findings = {f.what: f for f in runner.doctor(tmp_path)}
        assert findings["engine"].ok is False
        assert findings["engine"].fix
        assert findings["container"].ok is None
        assert findings["published port"].ok is None


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    os.setegid(65534)
    groups = os.getgroups()
    os.seteuid(0)
    os.setgroups([])
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@contextlib.contextmanager
def filled(port: int) -> Iterator[None]:
    """Fill a listener's queue, so that the kernel drops the next connection's packets."""
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        time.sleep(0.1)
        yield


@contextlib.contextmanager
def answering(path: Path, document: Any) -> Iterator[str]:
    """A unix socket that answers every GET with a document: engines that cannot be had here."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "unix"

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_UNIX

        def server_bind(self) -> None:
            self.socket.bind(str(path))
            self.server_name, self.server_port = "unix", 0

    server = Server(str(path), Handler)  # type: ignore[arg-type]  # a unix socket's address is its path
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"unix://{path}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_proxies_do_not_disturb(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    docker_engine.close()
    assert runner.start(plan)["container"]


def test_doctor_proves_by_doing_and_leaves_nothing(docker: str, tmp_path: Path) -> None:
    began = time.monotonic()
    findings = {f.what: f for f in runner.doctor(tmp_path)}
    assert time.monotonic() - began < 10
    assert findings["engine"].ok is True
    assert findings["container"].ok is True
    assert findings["published port"].ok is True
    assert all(f.fix for f in findings.values() if f.ok is False)
    assert runner.find() == {}
    until(lambda: "gymctl-doctor" not in docker_call(docker, "images"))  # another doctor may be at work


def test_a_full_disk_is_said_before_the_engine_gets_a_byte(docker: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import io

    with pytest.raises(Unavailable, match="GiB are free"):
        runner.load(io.BytesIO(b""), 1 << 60, lambda what, done, total: None)


def test_running_a_command_in_an_image_leaves_nothing(docker: str, python_image: str) -> None:
    done = runner.output(python_image, ["sh", "-c", "echo out; echo err >&2; exit 4"])
    assert (done.code, done.stdout, done.stderr) == (4, "out\n", "err\n")
    assert runner.find() == {}
