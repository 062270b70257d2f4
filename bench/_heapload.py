"""One load for every queue: so many producers, so many workers, one process; what each cycle took.

    python -m bench._heapload NAME ADDRESS SECONDS [RATE]     figures of one run, as JSON

A producer puts one message of 1 KiB at a time and goes on when the queue says
that it is durable. A worker takes one, and goes on when the queue says that
its ack is. No more than `WAITING` messages are put and not taken: a queue that
takes faster than it gives is not measured by its backlog. With a RATE the
producers share so many messages a second, and the figures are latencies.

This runs in the environment of the peers' clients too: it imports nothing but
the standard library and uvloop, and an adapter imports its own client.
"""

import asyncio
import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Final, Protocol

import uvloop

PRODUCERS: Final = 64
WORKERS: Final = 64
WAITING: Final = 1_000
BODY_BYTES: Final = 1_024
DRAIN_S: Final = 60.0


class Queue(Protocol):
    """One queue, as its client has it; opened and closed by the load."""

    async def open(self) -> None: ...

    async def put(self, body: bytes) -> None:
        """Durable when it returns."""
        ...

    async def work(self, workers: int, taken: Callable[[bytes], None], acked: Callable[[], None]) -> None:
        """Take and ack until cancelled; `acked` is called when the ack was answered, or given to the client."""
        ...

    async def settled(self) -> None:
        """Return when every ack is durable that `acked` was called for."""
        ...

    async def close(self) -> None: ...


class Load:
    """What one run has done so far."""

    def __init__(self, queue: Queue, seconds: float, rate: float) -> None:
        self._queue = queue
        self._seconds = seconds
        self._rate = rate
        self._begun: dict[bytes, float] = {}
        self._put = self._taken = self.acked = 0
        self._room = asyncio.Event()
        self._all = asyncio.Event()
        self._ended = False
        self.enqueues: list[float] = []
        self.deliveries: list[float] = []

    async def run(self) -> dict[str, float]:
        """Figures of a queue that is open."""
        working = asyncio.create_task(self._queue.work(WORKERS, self._note_taken, self._note_acked))
        cpu_s, began = _cpu_s(), time.perf_counter()
        producing = asyncio.gather(*(self._produce(number, began) for number in range(PRODUCERS)))
        await _first(producing, working)
        self._ended = True
        if self.acked < self._put:
            async with asyncio.timeout(DRAIN_S):
                await _first(asyncio.ensure_future(self._all.wait()), working)
        await self._queue.settled()
        spent_s = time.perf_counter() - began
        figures = {
            "cycles/s": self.acked / spent_s,
            "client CPU us/cycle": (_cpu_s() - cpu_s) / self.acked * 1e6,
            **_quantiles("enqueue", self.enqueues),
            **_quantiles("pop", self.deliveries),
            "cycles": float(self.acked),
        }
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return figures

    async def _produce(self, number: int, began: float) -> None:
        turn = number
        while True:
            if self._rate:
                await asyncio.sleep(max(0.0, began + turn / self._rate - time.perf_counter()))
                turn += PRODUCERS
            while self._put - self._taken >= WAITING:
                self._room.clear()
                await self._room.wait()
            at = time.perf_counter()
            if at - began >= self._seconds:
                return
            key = b"%010d" % self._put
            self._put += 1
            self._begun[key] = at
            await self._queue.put(key.ljust(BODY_BYTES, b"x"))
            self.enqueues.append(time.perf_counter() - at)

    def _note_taken(self, body: bytes) -> None:
        """A message that comes twice, or was never put, is no figure but an error."""
        self.deliveries.append(time.perf_counter() - self._begun.pop(bytes(body[:10])))
        assert len(body) == BODY_BYTES
        self._taken += 1
        if self._put - self._taken < WAITING:
            self._room.set()

    def _note_acked(self) -> None:
        self.acked += 1
        if self._ended and self.acked >= self._put:
            self._all.set()


async def _first(wanted: "asyncio.Future[object]", working: "asyncio.Task[None]") -> None:
    """Wait for it, and for nothing after workers that have failed."""
    await asyncio.wait((wanted, working), return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        wanted.cancel()
        working.result()
        raise RuntimeError("the workers ended by themselves")
    await wanted


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _quantiles(name: str, taken: list[float]) -> dict[str, float]:
    taken.sort()
    return {f"{name} p{part} ms": taken[len(taken) * part // 100] * 1e3 for part in (50, 95)}


async def _measure(name: str, address: str, seconds: float, rate: float) -> dict[str, float]:
    module, _, kind = name.partition(":")
    queue: Queue = getattr(importlib.import_module(f"bench.{module}"), kind)(address)
    await queue.open()
    try:
        return await Load(queue, seconds, rate).run()
    finally:
        await queue.close()


if __name__ == "__main__":
    _name, _address, _seconds, *_rate = sys.argv[1:]
    print(json.dumps(uvloop.run(_measure(_name, _address, float(_seconds), float(_rate[0]) if _rate else 0.0))))
