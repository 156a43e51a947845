"""Fast I/O on a clone: what QEMU shows is what the guest shows, and what is done arrives in programs, once and whole."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gymctl import wire
from gymctl.errors import EnvError, UsageError
from gymctl.runners import qemu
from gymctl.vm.console import Console
from gymctl.vm.display import Frame, Pushed
from gymctl.vm.input import GuestKeyboard
from tests.conftest import Cli
from tests.runners.qemu_clones import clone, handle, record


class Machine:
    """A clone with a console, and its guest's server to ask what really happened."""

    def __init__(self, cli: Cli, client: wire.Client, console: Console) -> None:
        self.cli, self.client, self.console = cli, client, console

    def run(self, command: str) -> str:
        """What a shell command of user ga prints."""
        answer = self.client.call("/execute", {"command": command, "shell": True})
        assert answer["returncode"] == 0, answer
        return str(answer["output"])

    def until(self, check: Callable[[], Any], seconds: float = 60) -> Any:
        """The first true answer; in the emulated guest programs take their time."""
        deadline = time.monotonic() + seconds
        while not (found := check()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return found

    def window(self, name: str, argv: list[str]) -> Any:
        """A program's window, once it is there and active."""
        self.client.send("POST", "/setup/launch", {"command": argv})
        shown = self.until(lambda: next((w for w in self.client.call("/windows")["windows"] if name in w["class"].lower()), None))
        self.client.send("GET", "/frame?stable=1&timeout=20")
        return shown

    def type(self, text: str) -> None:
        assert self.console.act([{"keyboard": {"text": text}}]) == {"actions": 1, "untyped": [], "held": []}

    def pointer_is(self, point: list[int]) -> None:
        """The guest's X server says so, at once or soon."""
        self.until(lambda: self.client.call("/cursor_position") == point, 5)

    def selects(self, elsewhere: list[int], mouse: dict[str, Any], *texts: str) -> None:
        """Select with the mouse and copy one of the texts; an editor that has just come up misses its first selection, whoever makes it."""

        def copied() -> bool:
            self.console.act([{"mouse": {"left_click": elsewhere}}])
            self.client.send("GET", "/frame?stable=0.7&timeout=3")
            self.console.act([{"mouse": mouse}])
            self.client.send("GET", "/frame?stable=0.7&timeout=3")
            self.keys("ctrl+c")
            self.client.send("GET", "/frame?stable=0.7&timeout=3")
            return self.client.call("/clipboard")["text"] in texts

        self.until(copied, 40)

    def keys(self, chord: str) -> None:
        self.console.act([{"keyboard": {"keys": chord}}])


@pytest.fixture(scope="module")
def machine(saved: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    cli = Cli(tmp_path_factory.mktemp("fast"))
    cli.env |= saved
    clone(cli, "fast", "--fast-io", "--opt", "display=dbus")
    its, token = handle(cli, "fast"), record(cli, "fast")["secrets"]["GUEST_TOKEN"]
    client = wire.Client(its["url"], headers={"Authorization": f"Bearer {token}"})
    with contextlib.closing(client), qemu.display(its, token) as console:
        yield Machine(cli, client, console)
    cli("stop", "fast")
    cli.close()


def test_the_pointer_is_where_it_was_sent_and_x_has_moved_it(machine: Machine) -> None:
    display = machine.console.display
    assert isinstance(display, Pushed)
    width, height = display.size()
    for point in ([0, 0], [width - 1, height - 1], [width // 3, 2 * height // 3], [640, 360]):
        for _ in range(2):  # the same again is a movement too
            moved = display.moves
            machine.console.act([{"mouse": {"move": point}}])
            assert display.wait_moved(moved, 5) > moved
            machine.pointer_is(point)
    machine.client.call("/input", [{"mouse": {"move": [5, 5]}}])  # somebody else
    machine.console.act([{"mouse": {"move": point}}])
    machine.pointer_is(point)
    with pytest.raises(UsageError, match="outside"):
        machine.console.act([{"mouse": {"move": [width, 0]}}])


def test_a_frame_is_what_the_guest_sees(machine: Machine) -> None:
    """The guest's own frame has the cursor in it, and so has this one, once the guest has changed its shape."""
    machine.window("mousepad", ["mousepad"])
    for point in ([640, 360], [640, 50], [642, 362]):
        machine.console.act([{"mouse": {"move": point}}])
        machine.client.send("GET", "/frame?stable=0.3&timeout=5")

    def same() -> bool:
        mine = machine.console.frame(cursor=True)
        assert machine.console.frame().pixels != mine.pixels
        other = machine.client.send("GET", "/frame?stable=0.2&timeout=5").body
        assert len(other) == len(mine.pixels)
        return sum(a != b for a, b in zip(bytes(mine.pixels)[1::4], other[1::4], strict=True)) < 10  # how edges are blended

    machine.until(same, 30)
    machine.run("pkill mousepad")
    machine.until(lambda: "mousepad" not in str(machine.client.call("/windows")).lower())


def test_two_thousand_characters_arrive(machine: Machine) -> None:
    generator = random.Random(11)
    text = "\n".join("".join(chr(generator.randrange(32, 127)) for _ in range(49)) for _ in range(40)) + "\n"
    machine.window("lxterminal", ["lxterminal", "-e", "sh -c 'cat > /tmp/typed'"])
    machine.type(text)
    machine.keys("ctrl+d")
    machine.until(lambda: "lxterminal" not in str(machine.client.call("/windows")).lower())
    assert machine.client.send("GET", "/files?path=/tmp/typed").body.decode() == text


def test_an_editor_is_clicked_dragged_and_typed_into(machine: Machine) -> None:
    machine.run("printf 'alpha beta gamma delta\\n' > /tmp/note.txt")
    shown = machine.window("mousepad", ["mousepad", "/tmp/note.txt"])
    x, y = shown["x"] + 20, shown["y"] + 37  # the first line, below the menu
    elsewhere = [x + 200, y + 100]
    machine.selects(elsewhere, {"double_click": [x, y]}, "alpha")
    machine.selects(elsewhere, {"triple_click": [x, y]}, "alpha beta gamma delta", "alpha beta gamma delta\n")
    machine.selects(elsewhere, {"left_click_drag": [[x - 15, y], [x + 60, y]]}, "alpha bet", "alpha be", "alpha b", "alpha beta")
    machine.keys("ctrl+a")
    machine.type("Grün € ärger, 100 %\n")
    machine.keys("ctrl+s")
    machine.until(lambda: machine.run("cat /tmp/note.txt") == "Grün € ärger, 100 %\n", 20)
    before = machine.console.frame()
    machine.console.act([{"mouse": {"right_click": [x + 40, y + 40]}}])
    machine.until(lambda: _changed(before, machine.console.frame()) > 500, 20)  # its menu; a caret is less
    machine.keys("Escape")
    machine.run("pkill mousepad")
    machine.until(lambda: "mousepad" not in str(machine.client.call("/windows")).lower())


def _changed(one: Frame, other: Frame) -> int:
    """How many pixels differ."""
    return sum(a != b for a, b in zip(bytes(one.pixels)[1::4], bytes(other.pixels)[1::4], strict=True))


def test_what_is_held_is_told_and_let_go(machine: Machine) -> None:
    assert machine.console.act([{"mouse": {"buttons": {"left_down": True}}}])["held"] == ["left button"]
    assert machine.console.act([{"keyboard": {"keys_down": ["shift"]}}])["held"] == ["left button", "shift"]
    machine.console.release()
    assert machine.console.act([{"mouse": {"move": [640, 360]}}])["held"] == []
    assert machine.client.call("/reset", {})["released"] == []


def test_a_keyboard_that_is_not_proven_is_an_error(machine: Machine) -> None:
    """A server that refuses stands for every reason why the guest's keyboard does not answer; no other keyboard takes its place."""

    def refuse(actions: list[Any]) -> Any:
        return machine.client.call("/input?hands=none", actions)

    with pytest.raises(EnvError, match=r"not proven.*no hands 'none'"):
        GuestKeyboard(refuse)


def test_python_sees_and_acts_by_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    import gymctl

    for name in ("GYMCTL_STATE_DIR", "GYMCTL_CACHE_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, machine.cli.env[name])
    with gymctl.open("linux-desktop", runner="qemu", fast_io=True, checkpoint="post_start", options={"display": "dbus"}) as env:
        assert env.instance.form == "clone"
        first = env.reset()
        assert first["screen"]["image"].size == (1280, 720)
        seen = env.step("click", x=640, y=360).value["screen"]["image"]
        assert seen.mode == "RGB"
        env.step("type", text="x")
