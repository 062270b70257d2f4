"""Where a connection's bytes arrive: slabs that are decoded in place.

The transport writes into the free tail of a slab; frames are cut from it as
memoryviews and decoded where they lie, so record bytes are not copied before
they are stored. A slab that some view still refers to is left to it, and the
connection takes a new one; the last slab left is kept as a spare, for fresh
memory costs more than the copy from the socket.

A slab grows with the bytes that arrived, not with the length that a peer
declared: at most to twice what it holds, or to the largest frame that this
connection has completed before.

Invariants
    KP11  Bytes under a living view are never overwritten: a slab is rewound
         only if the interpreter counts no export of it.
    KP12  Memory of a half-received frame is at most the idle slab, twice the
         bytes received of it, or the largest frame completed before it.
"""

import struct
from collections.abc import Callable
from typing import ClassVar, Final

from dray.servers.kafka.codec import Malformed
from dray.servers.kafka.settings import KIB, MIB

IDLE_BYTES: Final = 16 * KIB
BUSY_BYTES: Final = 1 * MIB
LARGE_BYTES: Final = 4 * MIB
SMALLEST_READ: Final = 1 * KIB
_HTTP: Final = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"OPTIO", b"DELET", b"PATCH", b"CONNE", b"PRI * ")
_TLS_HANDSHAKE: Final = 22
_TLS_MAJOR: Final = 3
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AND_KEY: Final = struct.Struct(">ih")
SMALLEST_FRAME: Final = 10  # key, version, correlation id, and the length of the client id


class FrameTooLarge(Malformed):
    """The declared length is negative, too small for a header, or above what this request may have."""

    reason: ClassVar[str] = "frame too large"


class NotKafka(FrameTooLarge):
    """The first bytes are those of another protocol."""


class SpokeHttp(NotKafka):
    reason = "HTTP on the Kafka port"


class SpokeTls(NotKafka):
    reason = "TLS on the Kafka port"


class ReceiveBuffer:
    """The slab of one connection and the unread bytes in it.

    `limit` tells the largest frame that a request of an API key may have;
    `hold` is told by how many bytes the slab memory changed; while `roomy`,
    slabs may grow for speed.
    """

    __slots__ = (
        "_end",
        "_filled",
        "_hold",
        "_largest",
        "_limit",
        "_memory",
        "_need",
        "_roomy",
        "_size",
        "_spare",
        "_start",
        "_target",
        "_view",
    )

    def __init__(
        self, limit: Callable[[int], int], hold: Callable[[int], None], roomy: Callable[[], bool] = lambda: True
    ) -> None:
        self._limit = limit
        self._hold = hold
        self._roomy = roomy
        self._memory = bytearray()
        self._view = memoryview(self._memory)
        self._spare: bytearray | None = None
        self._size = 0
        self._start = 0
        self._end = 0
        self._need = 0  # of the unfinished frame with its length field; 0: not known yet
        self._target = IDLE_BYTES
        self._largest = 0
        self._filled = False  # the last read took all the room it had: more is waiting

    @property
    def unread(self) -> int:
        return self._end - self._start

    @property
    def need(self) -> int:
        """What the unfinished frame takes with its length field, as declared; 0: not known yet."""
        return self._need

    def tail(self) -> memoryview:
        """Free memory to receive into; never empty."""
        free = self._size - self._end
        if self._need:
            if self._start + self._need > self._size and (free == 0 or self._need <= self._allowed()):
                self._turn_over()
        elif free < SMALLEST_READ:
            self._turn_over()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count
        self._filled = self._end == self._size

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length field, or None if its bytes have not all arrived.

        Raises:
            FrameTooLarge: the connection cannot go on.
        """
        unread = self._end - self._start
        if unread < _LENGTH_AND_KEY.size:
            if unread >= _LENGTH.size:
                self._check_smallest()
            return None
        if not self._need:
            length, key = _LENGTH_AND_KEY.unpack_from(self._memory, self._start)
            if not SMALLEST_FRAME <= length <= self._limit(key):
                raise _foreign(bytes(self._view[self._start : self._start + 6])) or FrameTooLarge(
                    "a request is too large", bytes=length, limit=self._limit(key), key=key
                )
            self._need = _LENGTH.size + length
        if unread < self._need:
            return None
        start = self._start + _LENGTH.size
        self._start += self._need
        frame = self._view[start : self._start]
        if self._need > self._largest:
            self._largest = self._need
        self._need = 0
        return frame

    def _check_smallest(self) -> None:
        """A length that no request has is not waited for; how large one may be depends on its key."""
        (length,) = _LENGTH.unpack_from(self._memory, self._start)
        if length < SMALLEST_FRAME:
            raise FrameTooLarge("a request is too small", bytes=length, least=SMALLEST_FRAME)

    def rest(self) -> None:
        """Give the memory back while nothing is unread; the next byte takes a small slab."""
        if self._start == self._end and self._size:
            self.close()

    def close(self) -> None:
        self._start = self._end = self._need = self._largest = 0
        self._target = IDLE_BYTES
        self._swap(bytearray(), 0)
        self._keep(None)

    def _allowed(self) -> int:
        return max(self._target, 2 * (self._end - self._start), self._largest)  # KP12

    def _turn_over(self) -> None:
        """Make room: in this slab if nothing refers to it and it is large enough, else in another."""
        unread = self._end - self._start
        enough = self._size >= self._target and max(self._need, 2 * unread) <= self._size
        grow = self._roomy()
        if enough and not (grow and self._filled and self._size < BUSY_BYTES) and self._rewind():
            return
        if grow and self._size >= self._target:  # the first slab is not grown from
            self._target = LARGE_BYTES if self._largest >= BUSY_BYTES else min(2 * self._target, BUSY_BYTES)
        size = max(self._target, min(self._need, self._allowed()))
        spare = self._spare
        if spare is not None and len(spare) >= size and _unused(spare):
            self._spare = None
            self._hold(-len(spare))  # charged again as the slab
            self._swap(spare, unread)
        else:
            self._swap(bytearray(size), unread)

    def _rewind(self) -> bool:
        self._view.release()
        free = _unused(self._memory)
        if free:
            unread = self._end - self._start
            self._memory[:unread] = self._memory[self._start : self._end]
            self._start, self._end = 0, unread
        self._view = memoryview(self._memory)
        return free

    def _swap(self, memory: bytearray, unread: int) -> None:
        """Go on in other memory, with the unread bytes; the old one becomes the spare."""
        memory[:unread] = self._view[self._start : self._end]
        self._view.release()
        old, self._memory = self._memory, memory
        self._hold(len(memory) - self._size)
        self._size = len(memory)
        self._view = memoryview(memory)
        self._start, self._end = 0, unread
        self._keep(old if len(old) >= BUSY_BYTES // 4 and self._roomy() else None)

    def _keep(self, spare: bytearray | None) -> None:
        old, self._spare = self._spare, spare
        self._hold((0 if spare is None else len(spare)) - (0 if old is None else len(old)))


def _foreign(start: bytes) -> NotKafka | None:
    """What speaks so, if it is something that people point at the wrong port."""
    if start.startswith(_HTTP):
        return SpokeHttp("a client spoke HTTP to the Kafka port: the page, health and metrics are at http.listen")
    if start[0] == _TLS_HANDSHAKE and start[1] == _TLS_MAJOR:
        return SpokeTls("a client spoke TLS to the Kafka port: set its security.protocol to PLAINTEXT")
    return None


def _unused(memory: bytearray) -> bool:
    """Whether nothing refers to the bytes (KP11): the length cannot change while anything does."""
    try:
        memory.append(memory.pop())  # in place: the room for the byte is there
    except BufferError:
        return False
    return True
