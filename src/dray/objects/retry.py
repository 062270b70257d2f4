"""Retries for any object store: full jitter, deadlines, and a budget.

Every attempt has a deadline and every call a total one. A token bucket that
refills with successful calls bounds retries as a share of the traffic, so an
outage is not met with a storm.

A put whose outcome is unknown is settled by reading back: the bytes are
there (success), others are (AlreadyExists), or nothing is yet, and then the
same put is repeated. It stays unknown until one of the first two is seen,
for the lost request may still arrive.

Invariants
    O8  A put that had one unknown attempt ends in success, `AlreadyExists`
        or `PutUnknown`; never in an error that says nothing happened.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dray.buffers import Buffer
from dray.clock import Clock
from dray.errors import DrayError, Unavailable, Unknown
from dray.ids import Entropy
from dray.objects.port import (
    AlreadyExists,
    Denied,
    NoSuchObject,
    ObjectInfo,
    Objects,
    PutUnknown,
    Settles,
    ShortObject,
    StoreUnavailable,
)
from dray.objects.readback import holds
from dray.objects.telemetry import DURATION, GAVE_UP, REQUESTS, RETRIED, SETTLED
from dray.telemetry import logger

T = TypeVar("T")
_BUDGET_PER_CALL: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long and how often a request is tried."""

    attempts: int = 8
    attempt_seconds: float | None = 10.0
    """Deadline of one attempt; None leaves it to the store (a local disk call can not be taken back)."""
    total_seconds: float = 60.0
    first_pause_seconds: float = 0.05
    longest_pause_seconds: float = 5.0
    budget: float = 20.0
    """Retries that may be made at once; every call gives a tenth of one back."""


LOCAL: Final = RetryPolicy(attempts=1, attempt_seconds=None)
"""A local disk gets better by itself too seldom to wait for it."""


class RetryingObjects:
    """An object store that is asked again when it did not answer."""

    def __init__(self, inner: Objects, clock: Clock, entropy: Entropy, policy: RetryPolicy | None = None) -> None:
        self._inner = inner
        self._clock = clock
        self._entropy = entropy
        self._policy = policy or RetryPolicy()
        self._tokens = self._policy.budget
        self._log = logger(component="objects")

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        call = self._begin("put", path)
        unknown = False
        while True:
            try:
                if unknown and await self._settled(call, path, parts):
                    return
                await self._attempt(call, lambda: self._inner.put(path, parts))
            except (AlreadyExists, Denied, Unavailable, Unknown) as error:
                unknown = unknown or isinstance(error, Unknown)
                if await self._pause(call, error):
                    continue
                if unknown and not isinstance(error, Unknown | AlreadyExists):
                    raise PutUnknown("the put may have happened", name=path, attempts=call.attempts) from error  # O8
                raise
            else:
                return

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        return await self._repeat("get", path, lambda: self._inner.get(path, start, end))

    async def head(self, path: str) -> ObjectInfo:
        return await self._repeat("head", path, lambda: self._inner.head(path))

    async def delete(self, path: str) -> None:
        await self._repeat("delete", path, lambda: self._inner.delete(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """After an error the listing starts again behind the last name it gave; the deadline holds per name."""
        call = self._begin("list", prefix)
        last = ""
        names = self._inner.list(prefix)
        while True:
            try:
                found = await self._within(call, anext(names, None))
            except Unavailable as error:
                REQUESTS.labels("list", _outcome(error)).inc()
                if not await self._pause(call, error):
                    raise
                names = self._inner.list(prefix)
                continue
            if found is None:
                REQUESTS.labels("list", "ok").inc()
                return
            if found.path > last:
                last = found.path
                yield found
                # What the caller did with it took its own time.
                call.deadline_ns, call.attempts = self._deadline_ns(), 0

    async def settle(self, path: str) -> None:
        """What is behind it does, if it must; a sync that failed is never tried again."""
        if isinstance(self._inner, Settles):
            await self._inner.settle(path)

    async def close(self) -> None:
        await self._inner.close()

    def _begin(self, op: str, name: str) -> "_Call":
        self._tokens = min(self._policy.budget, self._tokens + _BUDGET_PER_CALL)
        return _Call(op=op, name=name, deadline_ns=self._deadline_ns())

    def _deadline_ns(self) -> int:
        return self._clock.boot_ns() + int(self._policy.total_seconds * 1e9)

    async def _repeat(self, op: str, name: str, function: Callable[[], Awaitable[T]]) -> T:
        call = self._begin(op, name)
        while True:
            try:
                return await self._attempt(call, function)
            except (Unavailable, ShortObject) as error:
                if not await self._pause(call, error):
                    raise

    async def _attempt(self, call: "_Call", function: Callable[[], Awaitable[T]]) -> T:
        begun_ns = self._clock.boot_ns()
        outcome = "cancelled"
        try:
            result = await self._within(call, function())
            outcome = "ok"
            return result
        except DrayError as error:
            outcome = _outcome(error)
            raise
        finally:
            REQUESTS.labels(call.op, outcome).inc()
            DURATION.labels(call.op).observe((self._clock.boot_ns() - begun_ns) / 1e9)

    async def _settled(self, call: "_Call", path: str, parts: Sequence[Buffer]) -> bool:
        """Whether an earlier attempt is found to have won; `AlreadyExists` if another did."""
        found = await self._within(call, holds(self._inner, path, parts))
        REQUESTS.labels("readback", {None: "missing", True: "ok", False: "exists"}[found]).inc()
        if found is False:
            raise AlreadyExists("the name holds other bytes", name=path)
        if found:
            self._log.info(SETTLED, name=path, attempts=call.attempts)
        return found is True

    async def _within(self, call: "_Call", work: Awaitable[T]) -> T:
        """Wait for one attempt, not beyond its deadline or that of the call."""
        limit = self._policy.attempt_seconds
        if limit is None:
            return await work
        seconds = min(limit, (call.deadline_ns - self._clock.boot_ns()) / 1e9)
        task = asyncio.ensure_future(work)
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            task.cancel()
            timer.cancel()
            await asyncio.wait((task, timer))
        if call.op == "put":
            raise PutUnknown("no answer in time", name=call.name, seconds=seconds)  # E1
        raise StoreUnavailable("no answer in time", op=call.op, name=call.name, seconds=seconds)

    async def _pause(self, call: "_Call", error: DrayError) -> bool:
        """Sleep before the next attempt; False if there is none."""
        call.attempts += 1
        policy = self._policy
        if isinstance(error, AlreadyExists | Denied) or (isinstance(error, ShortObject) and call.attempts > 1):
            return False
        ceiling = min(policy.longest_pause_seconds, policy.first_pause_seconds * 2.0 ** (call.attempts - 1))
        seconds = self._entropy.uniform(0, ceiling)
        left = (call.deadline_ns - self._clock.boot_ns()) / 1e9
        if call.attempts >= policy.attempts or self._tokens < 1 or seconds >= left:
            self._log.warning(
                GAVE_UP, op=call.op, name=call.name, attempts=call.attempts, error=str(error), budget=self._tokens >= 1
            )
            return False
        self._tokens -= 1
        self._log.info(RETRIED, op=call.op, name=call.name, attempts=call.attempts, error=str(error))
        await self._clock.sleep(seconds)
        return True


@dataclass(slots=True, kw_only=True)
class _Call:
    op: str
    name: str
    deadline_ns: int
    attempts: int = 0


def _outcome(error: DrayError) -> str:
    for kind, outcome in _OUTCOMES:
        if isinstance(error, kind):
            return outcome
    return "error"


_OUTCOMES: Final = (
    (AlreadyExists, "exists"),
    (NoSuchObject, "missing"),
    (ShortObject, "short"),
    (Denied, "denied"),
    (Unknown, "ambiguous"),
    (Unavailable, "unavailable"),
)
