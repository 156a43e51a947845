"""The sessions that are open: a bounded number, of which those in use stay."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

MAX_OPEN = 128


class Closable(Protocol):
    """A session of either kind of server."""

    lock: asyncio.Lock

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Closable)


class OpenSessions(Generic[K, S]):
    """Open sessions by key, the one used last at the end."""

    def __init__(self, most: int = MAX_OPEN) -> None:
        self._most = most
        self._found: OrderedDict[K, S] = OrderedDict()

    def get(self, key: K) -> S | None:
        """The session when it is open."""
        return self._found.get(key)

    def used(self, key: K) -> None:
        """An open session was used."""
        self._found.move_to_end(key)

    def note(self, key: K, session: S) -> None:
        """A session was opened, used or closed; those over the bound that nobody uses are closed."""
        if not session.is_open:
            self._found.pop(key, None)
            return
        self._found[key] = session
        self._found.move_to_end(key)
        for name, candidate in list(self._found.items())[: max(0, len(self._found) - self._most)]:
            if not candidate.lock.locked():
                candidate.close()
                del self._found[name]

    def close(self) -> None:
        """Close them all."""
        for session in self._found.values():
            session.close()
        self._found.clear()
