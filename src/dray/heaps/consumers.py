"""Consumers: credits, deliveries, and what becomes of a grant whose bodies cannot be read.

Invariants
    HL1  A consumer is handed no more messages than the credits that it gave.
    HL3  "There is nothing" is said after a sync.
    HL5  What a consumer was granted and has not taken is bounded in number and
         in bytes, whatever its credits: bodies are read as it takes them.
    HL6  What a consumer was granted comes in the order of the grants: while
         bodies are read for it, it is granted nothing more.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from dray.buffers import Buffer
from dray.clock import Clock
from dray.errors import Corrupt, DrayError
from dray.heaps import telemetry
from dray.heaps.bodies import Body, unpack_body
from dray.heaps.ids import LeaseToken, MessageId
from dray.heaps.lane import HeapLane, SpawnTask
from dray.heaps.reading import BodyReader
from dray.machine.heaps.answers import Granted, GrantedMessage
from dray.machine.heaps.packets import Settlement, SettleRow
from dray.machine.heaps.shard import Shard
from dray.machine.names import StreamId, domain_of
from dray.telemetry import logger

MAX_CREDITS: Final = 10_000
HELD_BYTES: Final = 8 << 20
HELD_MOST: Final = 1_000
"""Messages that nobody has taken yet, of one consumer (HL5)."""
STORE_PAUSE_MS: Final = 1_000
"""After which a message comes back whose body the store did not give."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One message that its consumer holds. `lease_ms` runs from when it came here, until `until_ns` of boot time."""

    id: MessageId
    token: LeaseToken
    message: GrantedMessage
    body: Body
    lease_ms: int
    until_ns: int


class Consumer:
    """One consumer of one heap, as this broker knows it."""

    def __init__(
        self, *, shard: Shard, holder: str, worst: int, visibility_ms: int | None, lane: HeapLane, reader: BodyReader,
        clock: Clock, spawn: SpawnTask,
    ) -> None:  # fmt: skip
        self.shard: StreamId = shard.id
        self.holder = holder
        self.worst = worst
        self._state = shard
        self._visibility_ms = visibility_ms
        self._lane = lane
        self._reader = reader
        self._clock = clock
        self._spawn = spawn
        self._credits = 0
        self._reserved = 0
        self._ready: deque[Delivery] = deque()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._event = asyncio.Event()
        self._delivering = False
        self._closed = False

    @property
    def busy(self) -> bool:
        """Is something asked for, or on its way?"""
        return self._reserved > 0 or self._delivering

    @property
    def closed(self) -> bool:
        """It is granted nothing any more: its broker stops, or whoever had it closed it."""
        return self._closed

    @property
    def credits(self) -> int:
        """What it may still be granted (HL1): nothing while it has not taken or not got what it has (HL5, HL6)."""
        full = self._held_bytes >= HELD_BYTES or len(self._ready) >= HELD_MOST
        return 0 if self._closed or self._delivering or full else self._credits - self._reserved

    @property
    def visibility_ms(self) -> int:
        return self._visibility_ms or self._state.messages.config.visibility_ms

    def want(self, worst: int) -> None:
        """Another worst priority, from the next lease on."""
        self.worst = worst
        self._lane.kick()

    def add_credits(self, count: int) -> None:
        """They add to what is left; more than `MAX_CREDITS` are not kept."""
        self._credits = min(self._credits + count, MAX_CREDITS)
        self._lane.kick()

    def reserve(self, count: int) -> None:
        self._reserved += count

    def granted(self, reserved: int, grant: Granted, nonce: bytes) -> None:
        """The machine has judged a lease: what it gave is here, or on its way (HL1, HL6)."""
        self._reserved -= reserved
        self._credits -= len(grant.messages)
        if not grant.messages:
            return
        until_ns = self._clock.boot_ns() + grant.lease_ms * 1_000_000
        bodies = {message.slot: message.body for message in grant.messages if message.body is not None}
        if len(bodies) == len(grant.messages) and not self._closed and self._held_bytes + _size(bodies) <= HELD_BYTES:
            _, broken = self._hand_over(grant.messages, bodies, nonce, until_ns)
            if broken:
                self._spawn(self._reject(broken))
        else:
            self._delivering = True
            self._spawn(self._deliver(grant, nonce, until_ns))

    async def take(self, seconds: float) -> list[Delivery]:
        """What has come, waiting at most so long for the first."""
        if not self._ready and not self._closed:
            self._event.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._event.wait()
        taken = list(self._ready)
        self._ready.clear()
        if taken:
            self._held_bytes = 0
            self._room.set()
            self._lane.kick()
        return taken

    async def close(self) -> None:
        """No more grants; what was never taken is released, without counting an attempt."""
        self._closed = True
        self._event.set()
        self._room.set()
        self._lane.leave(self)
        left, self._ready = list(self._ready), deque()
        if left:
            await self._release([delivery.token for delivery in left], 0)

    async def _deliver(self, grant: Granted, nonce: bytes, until_ns: int) -> None:
        """Part by part, as there is room; what comes after the end goes back (HL5)."""
        late: list[LeaseToken] = []
        broken: list[LeaseToken] = []
        try:
            for part in _parts(grant.messages):
                while self._held_bytes >= HELD_BYTES and not self._closed:
                    self._room.clear()
                    await self._room.wait()
                if self._closed:
                    await self._release([LeaseToken(one.slot, one.arrival, nonce) for one in part], 0)
                    continue
                told = self._hand_over(part, await self._reader.read(part), nonce, until_ns)
                late += told[0]
                broken += told[1]
        finally:
            self._delivering = False
        self._lane.kick()
        if self._closed:
            await self.close()
        await self._release(late, STORE_PAUSE_MS)
        await self._reject(broken)

    def _hand_over(
        self, part: Sequence[GrantedMessage], bodies: Mapping[int, Buffer | DrayError], nonce: bytes, until_ns: int
    ) -> tuple[list[LeaseToken], list[LeaseToken]]:
        """What can be taken now; told are those whose body the store did not give, and those whose is broken."""
        late: list[LeaseToken] = []
        broken: list[LeaseToken] = []
        lease_ms = max(0, (until_ns - self._clock.boot_ns()) // 1_000_000)
        domain = domain_of(self.shard)
        for message in part:
            token = LeaseToken(message.slot, message.arrival, nonce)
            try:
                body = _body_of(bodies[message.slot])
            except Corrupt as error:
                telemetry.UNREADABLE_BODIES.inc()
                logger().error(telemetry.UNREADABLE, shard=self.shard, arrival=message.arrival, error=str(error))
                broken.append(token)
                continue
            except DrayError:
                late.append(token)
                continue
            self._ready.append(
                Delivery(
                    id=MessageId(message.begun_ms, domain, message.number, message.seq), token=token,
                    message=message, body=body, lease_ms=lease_ms, until_ns=until_ns,
                )
            )  # fmt: skip
            self._held_bytes += message.length
        self._credits += len(late) + len(broken)  # they were not delivered
        self._event.set()
        return late, broken

    async def _reject(self, tokens: Sequence[LeaseToken]) -> None:
        await self._settle(Settlement.REJECT, tokens, 0, "body unreadable")

    async def _release(self, tokens: Sequence[LeaseToken], pause_ms: int) -> None:
        await self._settle(Settlement.RELEASE, tokens, pause_ms, "")

    async def _settle(self, kind: Settlement, tokens: Sequence[LeaseToken], argument: int, note: str) -> None:
        """What fails here is ended by its deadline."""
        if not tokens:
            return
        rows = [SettleRow(kind, token.slot, token.arrival, token.nonce, argument) for token in tokens]
        try:
            await self._lane.settle(self.shard, rows, dict.fromkeys(range(len(rows)), note) if note else None)
        except DrayError as error:
            logger().warning(telemetry.TURN_FAILED, error=str(error))


def _size(bodies: Mapping[int, Buffer]) -> int:
    return sum([len(body) for body in bodies.values()])


def _parts(messages: Sequence[GrantedMessage]) -> list[list[GrantedMessage]]:
    """As many as may be held at once."""
    parts: list[list[GrantedMessage]] = []
    size = HELD_BYTES
    for message in messages:
        if size >= HELD_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += message.length
    return parts


def _body_of(found: Buffer | DrayError) -> Body:
    if isinstance(found, DrayError):
        raise found
    return unpack_body(found)
