"""Answers on their way out: given to the transport piece by piece.

A transport keeps every buffer of a write until the last of them is sent. An
answer of 50 MB would be held whole until a slow client has taken all of it;
so no more than a chunk is given to the transport at a time, and what waits
here is let go as it goes out.

Invariants
    KP17  Bytes leave in the order in which they were put, and each of them
          is counted as unsent until the operating system has taken it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from dray.buffers import Buffer

CHUNK_BYTES: Final = 4 << 20
HIGH_BYTES: Final = 256 << 10
"""The transport asks to pause when it holds more than this, and to go on at a quarter of it."""


class SendQueue:
    """What one connection has to send."""

    __slots__ = ("_blocked", "_parts", "_queued_bytes", "_transport", "put_bytes")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: deque[Buffer] = deque()
        self._queued_bytes = 0
        self._blocked = False
        self.put_bytes = 0
        """All that was ever put."""
        transport.set_write_buffer_limits(high=HIGH_BYTES)

    @property
    def open(self) -> bool:
        """Whether the client takes what it is sent, as far as one knows."""
        return not self._blocked and not self._parts

    @property
    def is_empty(self) -> bool:
        """Whether the transport has everything."""
        return not self._parts

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes + self._transport.get_write_buffer_size()  # KP17

    @property
    def taken_bytes(self) -> int:
        """All that the operating system ever took."""
        return self.put_bytes - self.unsent_bytes

    def put(self, parts: Sequence[Buffer], size: int) -> None:
        """Send these after what was put before.

        Raises:
            TypeError: one of them is no buffer; the stream is broken now.
        """
        self.put_bytes += size
        if size <= CHUNK_BYTES and self.open:
            self._write(parts)
            return
        self._parts.extend(parts)
        self._queued_bytes += size
        self._feed()

    def pause(self) -> None:
        self._blocked = True

    def resume(self) -> None:
        self._blocked = False
        self._feed()

    def drop(self) -> None:
        """The client is gone."""
        self._parts.clear()
        self._queued_bytes = 0

    def _feed(self) -> None:
        """Give the transport chunks for as long as it takes them."""
        parts = self._parts
        while parts and not self._blocked:
            chunk: list[Buffer] = []
            size = 0
            while parts and size < CHUNK_BYTES:
                part = parts.popleft()
                if size + len(part) > 2 * CHUNK_BYTES:  # one large part goes out in several chunks
                    part, rest = memoryview(part)[:CHUNK_BYTES], memoryview(part)[CHUNK_BYTES:]
                    parts.appendleft(rest)
                chunk.append(part)
                size += len(part)
            self._queued_bytes -= size
            self._write(chunk)

    def _write(self, parts: Sequence[Buffer]) -> None:
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
