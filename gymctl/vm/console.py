"""A machine's screen, mouse and keyboard in one hand, without the server's pictures in between: fast I/O."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymctl import wire
from gymctl.errors import UsageError
from gymctl.vm.display import Display, Frame, Pushed, Screendump
from gymctl.vm.input import GAP_MS, HOLD_MS, GuestKeyboard, Keyboard, Tablet, UsKeyboard, perform
from gymctl.vm.qmp import Qmp

INPUT_SECONDS = 120.0
KEYBOARDS = ("uinput", "virtio", "qmp-experimental")


class Console:
    """Frames and input of one running machine, for one user at a time."""

    def __init__(self, display: Display, tablet: Tablet, keyboard: Keyboard) -> None:
        self.display = display
        self._tablet, self._keyboard = tablet, keyboard

    def frame(self, *, cursor: bool = False) -> Frame:
        """The newest picture; Unavailable."""
        return self.display.frame(cursor=cursor)

    def wait(self, after: int, seconds: float) -> int:
        """Wait for a frame newer than sequence `after`; the sequence then."""
        return self.display.wait(after, seconds)

    def act(self, actions: Sequence[Any]) -> dict[str, Any]:
        """Do gym-anything's actions in their order: {actions, untyped, held}. UsageError before any is done, EnvError, Unavailable."""
        return perform(actions, self._tablet, self._keyboard)

    def release(self) -> None:
        """Nothing that was pressed from here stays down."""
        self._tablet.release()
        self._keyboard.release()


@contextlib.contextmanager
def opened(socket: Path, *, display: str, keyboard: str, url: str, token: str) -> Iterator[Console]:
    """A console over a machine's socket for input: `display` qmp or dbus, `keyboard` uinput, virtio or qmp-experimental. Unavailable, EnvError."""
    if keyboard not in KEYBOARDS:
        raise UsageError(f"--opt keyboard={keyboard}: one of {', '.join(KEYBOARDS)}")
    with contextlib.ExitStack() as stack:
        qmp = stack.enter_context(Qmp(socket))
        screen: Display = Pushed(qmp) if display == "dbus" else Screendump(qmp)
        stack.callback(screen.close)
        tablet = Tablet(qmp, screen.size, screen.moved if isinstance(screen, Pushed) else None)
        made = Console(screen, tablet, _keyboard(keyboard, qmp, stack, url, token))
        stack.callback(made.release)
        yield made


def _keyboard(name: str, qmp: Qmp, stack: contextlib.ExitStack, url: str, token: str) -> Keyboard:
    if name == "virtio":
        return UsKeyboard(qmp)
    if name == "qmp-experimental":
        return UsKeyboard(qmp, hold_ms=HOLD_MS, gap_ms=GAP_MS)
    client = wire.Client(url, headers={"Authorization": f"Bearer {token}"})
    stack.callback(client.close)

    def post(actions: list[Any]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = client.call("/input?hands=uinput", actions, timeout=INPUT_SECONDS)
        return answer

    return GuestKeyboard(post)
