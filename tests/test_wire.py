"""Waiting for an instance to serve."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from gymctl import wire
from gymctl.errors import StartError


def test_a_machine_that_died_behind_its_forward_is_told_of_at_once() -> None:
    """Somebody takes the connection and never answers."""
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as forward:
        client = wire.Client(f"http://127.0.0.1:{forward.getsockname()[1]}")
        with contextlib.closing(client), pytest.raises(StartError, match="it panicked"):
            wire.wait(client, "/health", 60, lambda: "it panicked" if time.monotonic() - began > 0.3 else "")
    assert time.monotonic() - began < 1.3
