"""Hands whose keys go through the kernel's own keyboard: never more of them on their way than it can hold, each seen to arrive in the X server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from . import uinput
from .faults import Fault
from .hands import Hands
from .windows import Windows
from .xi2 import Taken

ON_THEIR_WAY = 24
"""Transitions; each is two of the 64 events that the kernel keeps for a reader that is late."""
BATCH = 8
STUCK_SECONDS = 5.0
SETTLE_SECONDS = 0.05
LOWEST, HIGHEST = 9, 256


class UinputHands(Hands):
    """The same hands; a key counts as pressed when the X server has taken it."""

    def __init__(self, name: str, windows: Windows, fd: int) -> None:
        self._fd = fd
        self._taken = Taken(name, uinput.NAME)
        self._waiting: list[tuple[int, bool]] = []
        self._pressed: set[int] = set()
        self._sent = 0
        for start in range(LOWEST, HIGHEST, ON_THEIR_WAY):  # a server before this one may have been killed with a key down
            uinput.send(fd, [(code, False) for code in range(start, min(start + ON_THEIR_WAY, HIGHEST))])
        self._taken.wait(1, SETTLE_SECONDS)
        self._sent = self._taken.count
        super().__init__(name, windows)

    def _key(self, code: int, down: bool) -> None:
        if (code in self._pressed) == down:  # the kernel passes changes on, and nothing else: one that is none would be waited for in vain
            return
        (self._pressed.add if down else self._pressed.discard)(code)
        self._waiting.append((code, down))
        if len(self._waiting) >= BATCH:
            self._send()

    def _send(self) -> None:
        """Hand over what waits, as soon as there is room for it."""
        if not self._waiting:
            return
        self._await(self._sent + len(self._waiting) - ON_THEIR_WAY)
        uinput.send(self._fd, self._waiting)
        self._sent += len(self._waiting)
        self._waiting.clear()

    def _await(self, count: int) -> None:
        if not self._taken.wait(count, STUCK_SECONDS):
            lost = self._sent - self._taken.count
            self._sent = self._taken.count
            self._waiting.clear()
            raise Fault(
                503, "KeyboardStuck", f"the X server has not taken {lost} key events within {STUCK_SECONDS:g} s", "reset the desktop: gymctl reset NAME"
            )

    def arrived(self) -> None:
        """Returns when every key has been taken."""
        self._send()
        self._await(self._sent)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """As for other hands, and at its end everything typed has been taken."""
        with super().acting():
            yield
            self.arrived()

    def click(self, button: int, count: int = 1, at: tuple[int, int] | None = None) -> None:
        """A click comes after the keys before it."""
        self.arrived()
        super().click(button, count, at)

    def drag(self, button: int, path: Sequence[tuple[int, int]]) -> None:
        """As does a drag."""
        self.arrived()
        super().drag(button, path)

    def _give(self, keysyms: Sequence[int]) -> None:
        self.arrived()
        super()._give(keysyms)

    def release_held(self) -> None:
        """Let go of what clients hold."""
        super().release_held()
        self.arrived()

    def release_all(self) -> list[int]:
        """Let go of every key and button; the keycodes and buttons that were down."""
        released = super().release_all()
        self.arrived()
        return released

    def close(self) -> None:
        """Let go of everything; the keyboard itself stays."""
        super().close()
        self._taken.close()
