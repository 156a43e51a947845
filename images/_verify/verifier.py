"""For servers: verification in a worker process that is killed at the deadline. A worker that ended in time is kept as a spare."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from .checks import Vocabulary
from .evaluate import Data
from .faults import ExecutionFailed, InvalidChecks, TimedOut

DEFAULT_S = 10.0
MOST_S = 120.0
Reader = Callable[[list[tuple[str, str]], bool], Awaitable[tuple[Data, list[Any]]]]


class Verifier:
    """Runs verifications, each in a worker of its own; close() ends the spares."""

    def __init__(self, vocabulary: Vocabulary, spares: int = 2) -> None:
        self._vocabulary = dataclasses.asdict(vocabulary)
        self._spares = spares
        self._idle: list[asyncio.subprocess.Process] = []

    async def verify(self, checks: Any, claims: Any, read: Reader, timeout: float = DEFAULT_S) -> dict[str, Any]:
        """{"success", "verifiers"} within `timeout` seconds; InvalidChecks, ExecutionFailed, TimedOut.

        `read(tables, log)` is awaited once the checks are known to be well-formed: rows by server and table, and the log's rows.
        """
        worker: asyncio.subprocess.Process | None = None
        sound = False
        try:
            async with asyncio.timeout(timeout):
                worker = await self._take()
                answer = await self._exchange(worker, checks, claims, read, timeout)
                sound = True
        except TimeoutError:
            raise TimedOut(f"the checks were not evaluated in {timeout:g} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ExecutionFailed("the process that evaluates checks died") from None
        finally:
            if worker is not None:
                await self._put_back(worker, sound)
        if "faults" in answer:
            raise InvalidChecks(answer["faults"])
        if "failure" in answer:
            raise ExecutionFailed(answer["failure"])
        return answer

    async def _take(self) -> asyncio.subprocess.Process:
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None:
                return worker
            await _end(worker)
        return await _spawn()

    async def _exchange(self, worker: asyncio.subprocess.Process, checks: Any, claims: Any, read: Reader, timeout: float) -> dict[str, Any]:
        await _send(worker, {"checks": checks, "claims": claims, "vocabulary": self._vocabulary, "alarm": timeout + 1})
        answer = await _receive(worker)
        if "needs" not in answer:
            return answer
        needs = answer["needs"]
        data, log = await read([(server, table) for server, table in needs["tables"]], needs["log"])
        await _send(worker, {"data": data, "log": log})
        return await _receive(worker)

    async def _put_back(self, worker: asyncio.subprocess.Process, sound: bool) -> None:
        if sound and worker.returncode is None and len(self._idle) < self._spares:
            self._idle.append(worker)
        else:
            await _end(worker)

    async def close(self) -> None:
        """End the spare workers."""
        while self._idle:
            await _end(self._idle.pop())


async def _spawn() -> asyncio.subprocess.Process:
    folder = Path(__file__).resolve().parent.parent
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "_verify.worker", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )


async def _end(worker: asyncio.subprocess.Process) -> None:
    if worker.returncode is None:
        worker.kill()
    if worker.stdin is not None:
        worker.stdin.close()
    # wait() would never return while a full pipe is unread, so what is left in it is read first.
    if worker.stdout is not None:
        while await worker.stdout.read(1 << 16):
            pass
    await worker.wait()


async def _send(worker: asyncio.subprocess.Process, message: Any) -> None:
    assert worker.stdin is not None  # noqa: S101 - made with pipes
    content = msgspec.json.encode(message)
    worker.stdin.write(len(content).to_bytes(4, "big") + content)
    await worker.stdin.drain()


async def _receive(worker: asyncio.subprocess.Process) -> dict[str, Any]:
    assert worker.stdout is not None  # noqa: S101 - made with pipes
    size = int.from_bytes(await worker.stdout.readexactly(4), "big")
    answer: dict[str, Any] = msgspec.json.decode(await worker.stdout.readexactly(size))
    return answer
