"""Connections that load a Kafka port: they send prebuilt frames, count answers and check them."""

import asyncio
import struct
import time
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final

from bench._wire import (
    Refused,
    api_versions_request,
    batches,
    commit_response,
    fetch_request,
    fetch_response,
    produce_response,
)

_LENGTH_BYTES: Final = 4
_MOST_WAITING: Final = 10_000


class Tally:
    """What all connections of one run count together."""

    def __init__(self) -> None:
        self.requests = 0
        self.records = 0
        self.bytes = 0
        self.latencies_s = array("d")
        self.errors: dict[str, int] = {}
        self.late = 0

    def failed(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1


class Connection(asyncio.BufferedProtocol):
    """Receives length-prefixed frames into one buffer that is used again for each."""

    transport: asyncio.Transport

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.stopping = False
        self.idle = asyncio.Event()
        """Nothing more will come: stopped and all answered, or lost."""
        self._buffer = memoryview(bytearray(4096))
        self._start = 0
        self._end = 0

    def fill(self) -> None:
        """Begin to work."""

    def stop(self) -> None:
        """Begin nothing new; `idle` is set when what was begun is answered."""
        self.stopping = True

    def answered(self, frame: memoryview) -> None:
        """One whole answer, without its length."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's transports have no common base with these

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, received: int) -> None:
        self._end += received
        try:
            while (size := self._next_size()) is not None and self._end - self._start >= size:
                self.answered(self._buffer[self._start + _LENGTH_BYTES : self._start + size])
                self._start += size
        except (Refused, struct.error, IndexError) as error:
            self.tally.failed(f"{type(error).__name__}: {error}")
            self.transport.abort()
            return
        if self._start == self._end:
            self._start = self._end = 0
        else:
            self._make_room(self._next_size() or _LENGTH_BYTES)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.idle.is_set():
            self.tally.failed("connection lost")
        self.idle.set()

    def _next_size(self) -> int | None:
        if self._end - self._start < _LENGTH_BYTES:
            return None
        return _LENGTH_BYTES + int.from_bytes(self._buffer[self._start : self._start + _LENGTH_BYTES], "big")

    def _make_room(self, size: int) -> None:
        """Let the frame that has begun fit behind its start."""
        if self._start + size <= len(self._buffer):
            return
        begun = bytes(self._buffer[self._start : self._end])
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._buffer[: len(begun)] = begun
        self._start, self._end = 0, len(begun)


class Producing(Connection):
    """Keeps `inflight` prebuilt requests on their way; with 0 it sends only when told."""

    def __init__(self, tally: Tally, frames: Sequence[bytes], records: int, inflight: int) -> None:
        super().__init__(tally)
        self._frames = frames
        self._turn = 0
        self._records = records
        self._inflight = inflight
        self._sent: deque[tuple[float, int]] = deque()

    def fill(self) -> None:
        while len(self._sent) < self._inflight and not self.stopping:
            self.send(time.perf_counter())

    def send(self, due: float) -> None:
        """Send the next frame; its latency counts from `due`, however late this call is."""
        if len(self._sent) >= _MOST_WAITING:
            raise Refused(f"{_MOST_WAITING} requests wait for an answer: the broker does not keep up with the rate")
        frame = self._frames[self._turn % len(self._frames)]
        self._turn += 1
        self.transport.write(frame)
        self._sent.append((due, len(frame)))

    def stop(self) -> None:
        super().stop()
        if not self._sent:
            self.idle.set()

    def answered(self, frame: memoryview) -> None:
        due, size = self._sent.popleft()
        self.tally.latencies_s.append(time.perf_counter() - due)
        self.tally.requests += 1
        errors = self._errors(frame)
        for error in errors:
            self.tally.failed(error)
        if not errors:
            self.tally.records += self._records
            self.tally.bytes += size
        self.fill()
        if self.stopping and not self._sent:
            self.idle.set()

    def _errors(self, frame: memoryview) -> set[str]:
        return {f"error {one.error}" for one in produce_response(frame) if one.error or one.base_offset < 0}


class Committing(Producing):
    """Keeps OffsetCommits on their way."""

    def _errors(self, frame: memoryview) -> set[str]:
        error = commit_response(frame)
        return {f"error {error}"} if error else set()


class Fetching(Connection):
    """Reads one partition from its start to its end, again and again."""

    def __init__(self, tally: Tally, topic: str, partition: int, max_bytes: int) -> None:
        super().__init__(tally)
        self._topic = topic
        self._partition = partition
        self._max_bytes = max_bytes
        self._next = 0
        self._began = 0.0

    def fill(self) -> None:
        self._began = time.perf_counter()
        self.transport.write(fetch_request(self._topic, self._partition, self._next, self._max_bytes))

    def answered(self, frame: memoryview) -> None:
        self.tally.latencies_s.append(time.perf_counter() - self._began)
        self.tally.requests += 1
        fetched = fetch_response(frame)
        if fetched.error:
            raise Refused(f"the fetch at offset {self._next} was answered with error {fetched.error}")
        before = self._next
        for batch in batches(fetched.records):
            if batch.base_offset != self._next:
                raise Refused(f"asked for offset {self._next}, got a batch at {batch.base_offset}")
            self._next += batch.records
            self.tally.records += batch.records
            self.tally.bytes += batch.size
        if self._next == before:
            raise Refused(f"no whole batch at offset {before}, below the end {fetched.high_watermark}")
        if self._next >= fetched.high_watermark:
            self._next = 0
        if self.stopping:
            self.idle.set()
        else:
            self.fill()


class Holding(Connection):
    """Says hello once and then nothing; idle when it was greeted back."""

    def fill(self) -> None:
        self.transport.write(api_versions_request())

    def answered(self, frame: memoryview) -> None:
        self.idle.set()
