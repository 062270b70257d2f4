"""The delta log: a log in any object store, or in a directory, and nothing else.

    log/v1/domain=<domain>/_delta_log/%020d.json     one commit a version; position = version + 1

The store has no order of its own, only names that are created once. Whoever
creates version v has the log's position v + 1, and whoever finds the name
taken reads what is there and tries the next. Where a replica stands behind the
log (`foretells`), a version is put only after the one before it was applied,
so the commit can say which offsets its batches will get; a lost race is judged
again, which is what the specification calls a conflict.

The end is found by asking for the next name until there is none. A follower
does so by itself, seldom when nothing happens, and at once when somebody here
waits (`hurry`). What others have put in a directory may not be synced yet:
`settle` does that before it counts.

Invariants
    LG42  A version is acknowledged, counted or shown only when it is durable
          under its name: its writer's put has returned, or `settle` has.
    LG43  A put that won is believed if its writer was at the end of the log
          less than half the grace of a deletion ago (LG41), or if no boundary
          lies above it afterwards.
    LG44  What was known to be there and is not below a boundary stays there,
          or the log is `Corrupt`: it was wiped, or went back. It is looked for
          every `CHECK_S`, and nothing is deleted after that.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from dray.clock import Clock
from dray.errors import Conflict, Corrupt, Invalid, Unavailable
from dray.ids import Entropy
from dray.log.bell import Bell
from dray.log.delta.boundaries import GRACE_S, Boundaries
from dray.log.delta.commits import Foreteller, Operations, boundary_name, commit_name, decode, encode
from dray.log.delta.turns import FairTurns
from dray.log.limits import MAX_ENTRY_BYTES, check_entry, trimmed
from dray.log.port import LostReply, NotAppended, Position
from dray.log.telemetry import DELTA_COMMITS, DELTA_CONFLICTS, DELTA_LOOKS, RECONNECTING
from dray.objects.port import AlreadyExists, Denied, NoSuchObject, Objects, PutUnknown
from dray.telemetry import logger

CHECK_S: Final = 10.0
IDLE_S: Final = (0.1, 1.0)
"""The first pause between looks and the longest: what an idle log costs."""
AHEAD: Final = 32
"""Commits that are read at once."""
RECENT_BYTES: Final = 8 << 20
_RETRY_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_STRANGE: Final = 5

T = TypeVar("T")


class DeltaLog:
    """The log of one domain."""

    def __init__(
        self,
        objects: Objects,
        domain: int,
        *,
        clock: Clock,
        entropy: Entropy,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        settle: Callable[[str], Awaitable[None]] | None = None,
        grace_s: float = GRACE_S,
        idle_s: tuple[float, float] = IDLE_S,
        check_s: float = CHECK_S,
    ) -> None:
        self._objects = objects
        self._domain = domain
        self._clock = clock
        self._max_entry_bytes = max_entry_bytes
        self._settle = settle
        self._boundaries = Boundaries(objects, domain, clock, grace_s=grace_s)
        self._stale_ns = int(grace_s * 1e9) // 2
        self._idle_s = idle_s
        self._check_ns = int(check_s * 1e9)
        self._origin = entropy.random_bytes(6).hex()
        self._sent = 0
        self._turn = asyncio.Lock()
        self._turns = FairTurns(clock)
        self._bell = Bell()
        self._shown = Bell()
        self._closing = False
        self._foretells: Foreteller | None = None
        self._known = 0
        """The position of the newest commit that is known to be durable (LG42)."""
        self._sure_ns = clock.boot_ns() - self._stale_ns - 1
        """When it was surely the newest of all."""
        self._anchor, self._anchored_ns = 0, clock.boot_ns()
        """What was the newest when it was last looked for."""
        self._lost: Corrupt | None = None
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._hurried = False
        self._looked_ns = 0
        self.conflicts = 0

    async def open(self) -> "DeltaLog":
        """Find the end. Commits are dense above the boundary, so few questions are enough."""
        while True:
            boundary = await self._boundaries.highest()
            found = await self._end(boundary)
            if found > boundary or await self._boundaries.highest() == boundary:
                break  # else it was trimmed meanwhile, and names were missing for that
        await self._believe(found, boundary=found == boundary)
        return self

    def foretells(self, replica: Foreteller) -> None:
        """From now on commits say what they do, as this replica tells."""
        self._foretells = replica

    def hurry(self) -> None:
        """Somebody waits for the next entry: look now, or soon if it was looked just now."""
        self._hurried = True
        if self._clock.boot_ns() - self._looked_ns >= self._idle_s[0] * 1e9:
            self._bell.ring()

    # -- writing ---------------------------------------------------------------

    async def append(self, entry: bytes) -> Position:
        check_entry(entry, self._max_entry_bytes)
        async with self._turn:
            await self._give_way()
            strange = 0
            while True:
                if self._closing:
                    raise NotAppended("the log is closed")
                version = self._known
                position = await self._try(version, entry)
                if position is not None:
                    return position
                strange = strange + 1 if self._known == version else 0
                if strange > _STRANGE:
                    raise NotAppended("the store neither takes a commit nor shows another's", version=version)

    async def _give_way(self) -> None:
        """Let whoever lost against us have a turn."""
        pause_s = self._turns.pause_s
        if pause_s:
            before = self._known
            await self._clock.sleep(pause_s)
            await self._surely(self._look)
            self._turns.paused(used=self._known > before)

    async def _try(self, version: int, entry: bytes) -> Position | None:
        """Put the entry as a version; None: others were there first, or may have been."""
        self._check_not_lost()
        if self._is_stale():
            await self._surely(self._look)
        elif self._clock.boot_ns() - self._anchored_ns > self._check_ns:
            await self._surely(self._check_kept)
        operations = await self._foretold(version, entry)
        if operations is None or self._known != version:
            return None
        self._sent += 1
        began_ns = self._clock.boot_ns()
        body = encode(
            version=version, now_ms=self._clock.wall_ms(), txn_id=f"{self._origin}:{began_ns}:{self._sent}",
            operations=operations, entry=entry,
        )  # fmt: skip
        if not await self._put(version, body):
            return None
        if self._is_stale() and await self._is_zombie(version):
            return None
        DELTA_COMMITS.inc()
        self._turns.won((self._clock.boot_ns() - began_ns) / 1e9)
        if version == self._known:
            self._remember(version + 1, entry)
            self._known = version + 1
            self._anchor = self._anchor or self._known
            self._sure_ns = began_ns
        self._bell.ring()
        return Position(version + 1)

    async def _put(self, version: int, body: bytes) -> bool:
        try:
            await self._objects.put(commit_name(self._domain, version), [body])
        except AlreadyExists:
            self.conflicts += 1
            DELTA_CONFLICTS.inc()
            self._turns.lost()
            await self._surely(self._look)
            return False
        except PutUnknown as error:
            raise LostReply("the store did not answer; the entry may be in the log", reason=str(error)) from error
        except (Unavailable, Denied) as error:
            raise NotAppended("the store did not take the entry", reason=str(error)) from error
        return True

    async def _foretold(self, version: int, entry: bytes) -> Operations | None:
        """What the entry does as this version, once the one before it was applied; None: the log is longer by then."""
        if self._foretells is None:
            return ()
        while not self._closing and self._known == version:
            if self._foretells.position == version:
                return self._foretells.operations(entry)
            await self._shown.wait()
        return None

    async def _is_zombie(self, version: int) -> bool:
        """Whether we won what others had, trimmed and deleted (LG43)."""
        try:
            boundary = await self._boundaries.highest()
        except Unavailable as error:
            raise LostReply("the entry is in the log, or in what was trimmed of it", reason=str(error)) from error
        if boundary <= version:
            return False
        await self._objects.delete(commit_name(self._domain, version))
        await self._believe(max(self._known, boundary))
        await self._surely(self._look)
        return True

    async def _surely(self, question: Callable[[], Awaitable[None]]) -> None:
        """Ask before anything was sent: without an answer nothing happened."""
        try:
            await question()
        except (Unavailable, Denied) as error:
            raise NotAppended("the store does not answer", reason=str(error)) from error

    async def begin_behind(self, position: Position) -> None:
        """Let an empty log go on behind a position; to repeat it is harmless while nothing was appended."""
        if await self.tail() not in (0, position):
            raise Conflict("the log is not empty", domain=self._domain)
        await self._boundaries.begin_at(position)
        await self._believe(position, boundary=True)

    # -- the end ---------------------------------------------------------------

    async def tail(self) -> Position:
        await self._look()
        return Position(self._known)

    def _is_stale(self) -> bool:
        return self._clock.boot_ns() - self._sure_ns >= self._stale_ns

    async def _look(self) -> None:
        """Read on to the first version that nobody has."""
        self._check_not_lost()
        width = 1
        while True:
            began_ns, first = self._clock.boot_ns(), self._known + 1
            DELTA_LOOKS.inc(width)
            found = await asyncio.gather(*(self._read(position) for position in range(first, first + width)))
            there = next((index for index, entry in enumerate(found) if entry is None), width)
            for index in range(there):
                entry = found[index]
                assert entry is not None
                self._remember(first + index, entry)
            if there:
                await self._believe(first + there - 1)
            if there < width:
                if await self._was_passed():
                    continue
                self._sure_ns = max(self._sure_ns, began_ns)
                break
            width = min(2 * width, AHEAD)
        if self._clock.boot_ns() - self._anchored_ns > self._check_ns:
            await self._check_kept()

    async def _was_passed(self) -> bool:
        """Whether the next name is missing because it was trimmed: only who slept must ask (LG43)."""
        if not self._is_stale():
            return False
        boundary = await self._boundaries.highest()
        if boundary <= self._known:
            return False
        await self._believe(boundary, boundary=True)
        return True

    async def _believe(self, position: int, *, boundary: bool = False) -> None:
        """What is there up to a position counts from now on, a commit or a boundary (LG42)."""
        if position <= self._known:
            return
        if self._settle is not None:
            name = boundary_name(self._domain, position) if boundary else commit_name(self._domain, position - 1)
            await self._settle(name)
        if position > self._known:
            self._known = position
            self._anchor = self._anchor or position
            self._bell.ring()
            self._shown.ring()

    async def _check_kept(self) -> None:
        """LG44: what was the newest at the last check is still there."""
        anchor, newest = self._anchor, self._known
        self._anchored_ns = self._clock.boot_ns()
        if anchor and not await self._exists(anchor) and await self._boundaries.highest() < anchor:
            self._lost = Corrupt(
                "a commit is gone that was in the log: it was wiped, or went back to an older state. Stop every "
                "broker, and restore it from a backup",
                domain=self._domain, version=anchor - 1,
            )  # fmt: skip
            self._bell.ring()  # whoever follows is told too, whoever asked
        self._check_not_lost()
        self._anchor = max(self._anchor, newest)

    def _check_not_lost(self) -> None:
        if self._lost is not None:
            raise self._lost

    async def _exists(self, position: int) -> bool:
        try:
            await self._objects.head(commit_name(self._domain, position - 1))
        except NoSuchObject:
            return False
        return True

    async def _end(self, boundary: int) -> int:
        """The newest position, by doubling and halving."""
        there, step = boundary, 1
        while await self._exists(there + step):
            there += step
            step *= 2
        missing = there + step
        while missing - there > 1:
            middle = (there + missing) // 2
            if await self._exists(middle):
                there = middle
            else:
                missing = middle
        return there

    # -- reading ---------------------------------------------------------------

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        boundary = await self._patiently(self._boundaries.highest)
        if boundary is not None and boundary > after:
            raise trimmed(after, Position(boundary + 1))
        self._shown.ring()  # whoever follows has applied what is before
        width = 1
        idle_s = self._idle_s[0]
        while not self._closing:
            if after >= self._known:
                self._hurried = False
                await self._patiently(self._look)
                if after < self._known:
                    idle_s = self._idle_s[0]
                elif not self._closing:
                    idle_s = await self._idle(self._idle_s[0] if self._hurried else idle_s)
                continue
            page = await self._patiently(lambda: self._page(after, width))  # noqa: B023 - awaited here
            for entry in page or ():
                after = Position(after + 1)
                yield after, entry
                self._shown.ring()
            width = min(2 * width, AHEAD)

    async def _idle(self, idle_s: float) -> float:
        """Wait until there is a reason to look; how long to wait the next time."""
        self._looked_ns = self._clock.boot_ns()
        with suppress(TimeoutError):
            async with asyncio.timeout(idle_s):
                await self._bell.wait()
            return self._idle_s[0]
        return min(2 * idle_s, self._idle_s[1])

    async def _page(self, after: int, width: int) -> list[bytes]:
        """The next entries, at least one."""
        positions = range(after + 1, min(self._known, after + width) + 1)
        found = await asyncio.gather(*(self._read(position) for position in positions))
        page = []
        for entry in found:
            if entry is None:
                break
            page.append(entry)
        if not page:
            boundary = await self._boundaries.highest()
            if boundary > after:
                raise trimmed(Position(after), Position(boundary + 1))
            raise Corrupt(
                "a commit is missing in the log: it was wiped, or went back to an older state. Stop every broker, and "
                "restore it from a backup",
                domain=self._domain, version=after,
            )  # fmt: skip
        return page

    async def _read(self, position: int) -> bytes | None:
        """The entry at a position; None: there is none."""
        recent = self._recent.get(position)
        if recent is not None:
            return recent
        try:
            body = await self._objects.get(commit_name(self._domain, position - 1))
        except NoSuchObject:
            return None
        return decode(body, position - 1).entry

    def _remember(self, position: int, entry: bytes) -> None:
        if position not in self._recent:
            self._recent[position] = entry
            self._recent_bytes += len(entry)
        while self._recent_bytes > RECENT_BYTES:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest)

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """A follower outlives a store that does not answer; None: the log was closed."""
        failures = 0
        while not self._closing:
            try:
                return await call()
            except Unavailable as error:
                pause_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
                logger(domain=self._domain).info(RECONNECTING, pause_s=pause_s, reason=str(error))
                failures += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._bell.wait()
        return None

    # -- history ---------------------------------------------------------------

    async def trim(self, upto: Position) -> None:
        if upto > (tail := await self.tail()):
            raise Invalid("cannot trim above the tail", upto=upto, tail=tail)
        await self._boundaries.raise_to(upto)
        for position in [position for position in self._recent if position <= upto]:
            self._recent_bytes -= len(self._recent.pop(position))

    async def close(self) -> None:
        self._closing = True
        self._bell.ring()
        self._shown.ring()
