"""Is this key valid? Judged by the live record every time, by Argon2id once a minute.

A key that was found right is remembered for a minute as a keyed digest,
beside the hash that it fitted. Each call looks at the record of the key as it
is now, so a revocation works as soon as it is applied here. A key that was
found wrong is remembered for ten seconds. Checks run in threads of their own;
those of keys that nobody has seen here before leave one of them free.

Invariants
    AC5  A credential that was revoked does nothing once that is applied here.
    AC6  "Not valid" is only said of a key that was judged, after a sync; what
         cannot be judged is told as unavailable.
    AC9  No hash is made on the loop, and few at a time.
"""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final, Generic, NamedTuple, TypeVar

from dray.access import telemetry
from dray.access.errors import OverLimit, Unauthenticated
from dray.access.keys import KEY_CHARS, KeyText, parse_key
from dray.access.limits import Guesses
from dray.access.passwords import fits
from dray.clock import Clock
from dray.ids import Entropy
from dray.machine.access import ApiKey
from dray.offload import Offload
from dray.replica.replica import Replica
from dray.telemetry import logger

T = TypeVar("T")

GOOD_NS: Final = 60_000_000_000
BAD_NS: Final = 10_000_000_000
MOST_REMEMBERED: Final = 10_000
MOST_WAITING: Final = 100
DIGEST_BYTES: Final = 16
WRONG: Final = "this key is not valid"


class Remembered(Generic[T]):
    """A bounded memory of digests; what was longest unused goes first."""

    def __init__(self) -> None:
        self._all: OrderedDict[bytes, T] = OrderedDict()

    def get(self, digest: bytes) -> T | None:
        found = self._all.get(digest)
        if found is not None:
            self._all.move_to_end(digest)
        return found

    def put(self, digest: bytes, value: T) -> None:
        self._all[digest] = value
        self._all.move_to_end(digest)
        if len(self._all) > MOST_REMEMBERED:
            self._all.popitem(last=False)


class _Known(NamedTuple):
    """A key that fitted."""

    id: str
    hash: str
    until_ns: int


class KeyVerifier:
    """Judges the keys that callers show."""

    def __init__(self, *, catalog: Replica, clock: Clock, entropy: Entropy, offload: Offload, parallel: int) -> None:
        self._catalog = catalog
        self._clock = clock
        self._offload = offload
        self._pepper = entropy.random_bytes(32)
        self._good: Remembered[_Known] = Remembered()
        self._bad: Remembered[int] = Remembered()
        self._judging: dict[bytes, asyncio.Task[bool]] = {}
        self._guesses = Guesses(clock)
        self._strangers = asyncio.Semaphore(max(1, parallel - 1))
        self._threads = asyncio.Semaphore(parallel)

    async def verify(self, text: str, address: str) -> ApiKey:
        """The record of a key that is valid now.

        Raises:
            Unauthenticated: it is not.
            OverLimit: nobody looked, for there were too many wrong ones.
            Unavailable: it could not be judged.
        """
        self._catalog.check_serving()  # AC6
        digest = self._digest(text)
        known = self._good.get(digest)
        if known is not None and self._clock.boot_ns() < known.until_ns:
            record = self._catalog.machine.access.find(known.id)  # AC5: the live one
            if record is not None and record.hash == known.hash:
                return record
        return await self._look(digest, parse_key(text), known, address)

    def _digest(self, text: str) -> bytes:
        """Of a key, before it is read; of what cannot be one nothing is remembered."""
        fits_one = len(text) == KEY_CHARS and text.isascii()
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES, key=self._pepper).digest() if fits_one else b""

    async def _look(self, digest: bytes, shown: KeyText, known: "_Known | None", address: str) -> ApiKey:
        """What is not remembered, or no more."""
        record = self._catalog.machine.access.find(shown.id)
        if (self._bad.get(digest) or 0) > self._clock.boot_ns():
            raise Unauthenticated(WRONG)
        trusted = record is not None and known is not None and known.hash == record.hash
        guesses = not trusted and digest not in self._judging  # a fleet that shows one key makes one guess
        if guesses:
            self._take_guess(shown.id, address)
        if record is None:
            record = await self._find_surely(shown.id, digest)
        if not await self._judge(digest, shown, record, trusted):
            self._bad.put(digest, self._clock.boot_ns() + BAD_NS)
            raise Unauthenticated(WRONG)
        if guesses:
            self._guesses.was_right(shown.id, address)
        self._good.put(digest, _Known(record.id, record.hash, self._clock.boot_ns() + GOOD_NS))
        if self._catalog.machine.access.find(shown.id) is None:  # AC5: it was revoked meanwhile
            raise Unauthenticated(WRONG)
        return record

    def _take_guess(self, key_id: str, address: str) -> None:
        try:
            self._guesses.take(key_id, address)
        except OverLimit:
            logger().debug(telemetry.GUESSING, address=address)
            raise

    async def _find_surely(self, key_id: str, digest: bytes) -> ApiKey:
        """No negative answer from memory: somebody may have made the key a moment ago (AC6)."""
        await self._catalog.sync()
        record = self._catalog.machine.access.find(key_id)
        if record is None:
            self._bad.put(digest, self._clock.boot_ns() + BAD_NS)
            raise Unauthenticated(WRONG)
        return record

    async def _judge(self, digest: bytes, shown: KeyText, record: ApiKey, trusted: bool) -> bool:
        """Once for all who show the same key at the same time."""
        task = self._judging.get(digest)
        if task is None:
            if len(self._judging) >= MOST_WAITING:
                raise OverLimit("too many keys wait to be checked: try again in a moment")
            task = asyncio.create_task(self._check(shown, record.hash, trusted))
            self._judging[digest] = task
            telemetry.QUEUE.set(len(self._judging))
            task.add_done_callback(lambda done: self._judged(digest, done))
        return await asyncio.shield(task)

    def _judged(self, digest: bytes, done: "asyncio.Task[bool]") -> None:
        self._judging.pop(digest, None)
        telemetry.QUEUE.set(len(self._judging))
        if not done.cancelled():
            done.exception()  # whoever waited has it; perhaps nobody waits any more

    async def _check(self, shown: KeyText, stored: str, trusted: bool) -> bool:
        began_ns = self._clock.boot_ns()
        if trusted:
            right = await self._hash(shown, stored)
        else:
            async with self._strangers:
                right = await self._hash(shown, stored)
        telemetry.DURATION.observe((self._clock.boot_ns() - began_ns) / 1e9)
        return right

    async def _hash(self, shown: KeyText, stored: str) -> bool:
        async with self._threads:
            return await self._offload.run(fits, shown.reveal(), stored)  # AC9
