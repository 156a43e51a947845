"""Frames and keys of a real QEMU that shows its firmware's screen."""

from __future__ import annotations

import contextlib
import string
import time
from typing import Any

import pytest

from gymctl.errors import Unavailable, Unsupported, UsageError
from gymctl.vm.display import Frame, Pushed, Screendump
from gymctl.vm.input import Tablet, UsKeyboard, perform
from gymctl.vm.qmp import Qmp
from tests.conftest import lacking
from tests.vm.conftest import Bare

SCREEN = ("-machine", "q35", "-vga", "none", "-device", "VGA,id=video0", "-device", "virtio-keyboard-pci", "-device", "qemu-xhci", "-device", "usb-tablet")


@pytest.fixture
def shown(bare: Bare) -> Qmp:
    """A QEMU with a D-Bus display, its firmware stopped before it can paint again."""
    try:
        qmp = bare(*SCREEN, "-display", "dbus,p2p=yes")
    except Unavailable as error:
        lacking("qemu", f"no D-Bus display: {error.message}")
    time.sleep(1.5)  # the firmware's first words
    qmp.execute("stop")
    return qmp


def same(frame: Frame, other: Frame) -> bool:
    """Whether BGRX rows and RGB rows show one picture."""
    assert (frame.order, other.order) == ("BGRX", "RGB")
    channels = all(frame.pixels[place::4] == other.pixels[channel::3] for channel, place in enumerate((2, 1, 0)))
    return channels and (frame.width, frame.height) == (other.width, other.height)


def test_a_pushed_frame_is_a_screendump_pixel_for_pixel(shown: Qmp) -> None:
    """In text mode a cursor blinks: a frame of each is taken until they are of one moment."""
    pushed, dump = Pushed(shown), Screendump(shown)
    try:
        deadline = time.monotonic() + 20
        while not same(frame := pushed.frame(), dump.frame()):
            assert time.monotonic() < deadline
        assert len(set(frame.pixels[0::4])) > 1, "nothing was painted, so nothing is proven"
        assert pushed.size() == dump.size() == (frame.width, frame.height)
        assert abs(frame.time - time.time()) < 60
    finally:
        pushed.close()
        dump.close()


def test_a_screendump_leaves_nothing_in_qemu(bare: Bare) -> None:
    qmp = bare(*SCREEN, "-display", "none")
    for _ in range(3):
        with contextlib.closing(Screendump(qmp)) as dump:
            assert dump.frame().width > 0
    assert qmp.execute("query-fdsets") == []


def test_a_change_is_pushed_and_a_frame_is_ones_own(shown: Qmp) -> None:
    with contextlib.closing(Pushed(shown)) as pushed:
        before = pushed.frame()
        kept, sequence = bytes(before.pixels), before.sequence
        shown.execute("system_reset")
        shown.execute("cont")
        deadline = time.monotonic() + 20
        while (sequence := pushed.wait(sequence, 20)) and pushed.frame().pixels == kept:
            assert time.monotonic() < deadline
        assert before.pixels == kept
        assert sequence > before.sequence


def test_who_comes_later_takes_the_display_over(shown: Qmp) -> None:
    with contextlib.closing(Pushed(shown)) as one:
        assert one.frame().sequence
        with contextlib.closing(Pushed(shown)) as two:
            assert two.frame().sequence
            with pytest.raises(Unavailable, match="ended"):
                one.wait(10**9, 10)


def test_a_console_that_is_not_there(shown: Qmp) -> None:
    with pytest.raises(Unsupported, match="console 7"):
        Pushed(shown, console=7)


def test_without_the_display_the_way_to_it_is_told(bare: Bare) -> None:
    qmp = bare(*SCREEN, "-display", "none")
    with pytest.raises(Unavailable) as error:
        Pushed(qmp)
    assert "display=dbus" in error.value.hint
    dump = Screendump(qmp)
    with pytest.raises(Unsupported, match="cursor"):
        dump.frame(cursor=True)
    dump.close()


def test_its_end_is_no_frame(shown: Qmp) -> None:
    pushed = Pushed(shown)
    shown.execute("quit")
    with contextlib.closing(pushed):
        with pytest.raises(Unavailable, match="ended"):
            pushed.wait(10**9, 10)
        with pytest.raises(Unavailable, match="ended"):
            pushed.frame()


def test_every_printable_character_has_a_key_that_qemu_knows(bare: Bare) -> None:
    qmp = bare(*SCREEN, "-display", "none")
    keyboard = UsKeyboard(qmp)
    tablet = Tablet(qmp, lambda: (720, 400))
    done = perform([{"keyboard": {"text": string.printable.replace("\r", "").replace("\x0b", "").replace("\x0c", "")}}], tablet, keyboard)
    assert done == {"actions": 1, "untyped": [], "held": []}
    for name in ("ctrl+alt+delete", "super", "pageup", "f12", "capslock", "menu", "printscreen"):
        perform([{"keyboard": {"keys": name}}], tablet, keyboard)
    assert perform([{"keyboard": {"keys_down": ["shift"]}}], tablet, keyboard)["held"] == ["shift"]
    keyboard.release()
    assert keyboard.held() == []


def test_what_cannot_be_done_is_told_before_anything_is(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    qmp = bare(*SCREEN, "-display", "none")
    sent: list[str] = []
    plain = qmp.execute

    def execute(command: str, /, **more: Any) -> Any:
        sent.append(command)
        return plain(command, **more)

    monkeypatch.setattr(qmp, "execute", execute)
    tablet, keyboard = Tablet(qmp, lambda: (720, 400)), UsKeyboard(qmp)
    for faulty, said in (
        ({"mouse": {"left_click": [720, 10]}}, "outside"), ({"mouse": {"left_click": "x"}}, "no point"), ({"mouse": {"hit": [1, 1]}}, "hit"),
        ({"keyboard": {"text": "naïve"}}, r"U\+00EF"), ({"keyboard": {"keys": "hyper+x"}}, "hyper"), ({"voice": {}}, "voice"), ({}, "no action"),
        ({"mouse": {"left_click_drag": [[1, 1]]}}, "path"), ({"action": "wait", "seconds": 1e9}, "no time"), ({"mouse": {"buttons": {"left": True}}}, "button"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            perform([{"mouse": {"move": [1, 1]}}, faulty], tablet, keyboard)
    assert sent == []
    assert perform([{"mouse": {"buttons": {"left_down": True}}}], tablet, keyboard)["held"] == ["left button"]
    tablet.release()
    assert tablet.held() == []
