"""What every engine of the log keeps: one suite, run unchanged by each of them.

An engine's test module subclasses `LogContract` and gives it the fixture
`log_factory`; besides it `FullLogContract` if it can be full, and
`SharedLogContract` if no process of ours keeps the log, and
`BeginningLogContract` if a cluster can be moved there. Positions may have
holes; nothing but the last counts on density.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from dray.errors import Conflict, Corrupt
from dray.log.bell import Bell
from dray.log.port import BEFORE_ALL, BeginsBehind, Log, LostReply, NotAppended, Position, Trimmed

DEADLINE_S = 30
ROOT = Path(__file__).parents[2]


class LogFactory(Protocol):
    """How the suite opens an engine, and hurts it."""

    max_entry_bytes: int

    async def open(self) -> Log:
        """A further handle on the one log under test."""
        ...

    async def restart(self) -> None:
        """End every handle and the engine itself, then start it again on what it kept."""
        ...

    async def disconnect(self) -> None:
        """Break what connects handles and engine, if there is such a thing; handles go on by themselves."""
        ...

    async def append_with_lost_reply(self, log: Log, entry: bytes) -> None:
        """Let `entry` reach the engine through `log`, and raise what `append` raises when the answer is lost."""
        ...

    async def append_unheard(self, log: Log, entry: bytes) -> Position:
        """Append; whatever tells followers of this one entry is lost."""
        ...

    async def open_other(self) -> Log:
        """A handle on the log of another domain of the same engine."""
        ...

    async def close(self) -> None: ...


class FullLogFactory(LogFactory, Protocol):
    """Of an engine that has an end."""

    async def fill_up(self) -> None:
        """Let there be no room for a further entry."""
        ...

    async def make_room(self) -> None:
        """What an operator does then, if he must do anything."""
        ...


class SharedLogFactory(LogFactory, Protocol):
    """Of an engine that is kept elsewhere."""

    url: str
    """As another process opens it, domain `domain` of it."""
    domain: int

    async def go_back(self, to: Position) -> None:
        """Let the engine forget what lies behind a position, all of it at 0, while handles are open."""
        ...


class NeighbourLogFactory(SharedLogFactory, Protocol):
    """Of an engine that keeps the logs of several clusters."""

    async def open_neighbour(self) -> Log:
        """The same domain of another cluster on the same engine, whose name begins as ours does."""
        ...


async def take(log: Log, after: int, count: int) -> list[tuple[Position, bytes]]:
    """The next `count` entries behind `after`."""
    entries: list[tuple[Position, bytes]] = []
    if count == 0:
        return entries
    async with asyncio.timeout(DEADLINE_S):
        stream = log.follow(Position(after))
        async for entry in stream:
            entries.append(entry)
            if len(entries) == count:
                break
        await aclose(stream)
    return entries


async def take_upto(log: Log, after: int, upto: int) -> list[tuple[Position, bytes]]:
    """The entries in (after, upto]; `upto` must be the position of an entry."""
    entries: list[tuple[Position, bytes]] = []
    if upto <= after:
        return entries
    async with asyncio.timeout(DEADLINE_S):
        stream = log.follow(Position(after))
        async for entry in stream:
            entries.append(entry)
            if entry[0] >= upto:
                break
        await aclose(stream)
    assert entries[-1][0] == upto, "the tail is the position of an entry"
    return entries


async def aclose(stream: AsyncIterator[tuple[Position, bytes]]) -> None:
    """Let go of a follower now, not at some later garbage collection."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


async def fill(log: Log, count: int, size: int = 100, name: str = "e") -> list[tuple[Position, bytes]]:
    """Append `count` entries one after the other."""
    return [(await log.append(entry), entry) for entry in named(name, count, size)]


def named(name: str, count: int, size: int = 100) -> list[bytes]:
    return [f"{name}-{index}|".encode().ljust(size, b".") for index in range(count)]


@contextmanager
def deaf(bell: Bell) -> Iterator[None]:
    """Nobody hears this bell."""
    waiters, bell._waiters = bell._waiters, []
    try:
        yield
    finally:
        bell._waiters += waiters


class LogContract:
    """Subclass it, and define the fixture `log_factory`."""

    async def test_an_empty_log_has_tail_zero_and_shows_nothing(self, log_factory: LogFactory) -> None:
        log = await log_factory.open()
        assert await log.tail() == BEFORE_ALL
        seen = asyncio.ensure_future(anext(log.follow(BEFORE_ALL)))
        position = await log.append(b"first")
        async with asyncio.timeout(DEADLINE_S):
            assert await seen == (position, b"first")
        assert position > BEFORE_ALL

    async def test_entries_come_back_byte_for_byte_in_the_order_of_their_positions(
        self, log_factory: LogFactory
    ) -> None:
        """W-15"""
        log = await log_factory.open()
        entries = [(await log.append(entry), entry) for entry in (b"a", b"\0" * 300, bytes(range(256)), b"a")]
        assert [position for position, _ in entries] == sorted({position for position, _ in entries})
        assert await log.tail() == entries[-1][0]
        assert await take(log, BEFORE_ALL, 4) == entries

    async def test_all_followers_of_all_handles_see_one_order(self, log_factory: LogFactory) -> None:
        """LG1, R-042: concurrent appenders through several handles; same entries, same order, no gap."""
        handles = [await log_factory.open() for _ in range(3)]
        acked: dict[bytes, Position] = {}

        async def appender(log: Log, name: str) -> None:
            for entry in named(name, 20):
                acked[entry] = await log.append(entry)

        total = len(handles) * 4 * 20
        followers = [asyncio.ensure_future(take(log, BEFORE_ALL, total)) for log in handles]
        async with asyncio.TaskGroup() as group:
            for number, log in enumerate(handles):
                for lane in range(4):
                    group.create_task(appender(log, f"h{number}l{lane}"))
        orders = [await follower for follower in followers]
        late = await take(await log_factory.open(), BEFORE_ALL, total)
        assert all(order == late for order in orders)
        assert {entry: position for position, entry in late} == acked
        positions = [position for position, _ in late]
        assert positions == sorted(set(positions))
        for number in range(len(handles)):
            for lane in range(4):
                own = [entry for _, entry in late if entry.startswith(f"h{number}l{lane}-".encode())]
                assert own == named(f"h{number}l{lane}", 20), "one appender's entries keep its order"

    async def test_what_was_acknowledged_is_there_after_a_restart(self, log_factory: LogFactory) -> None:
        """LG2."""
        log = await log_factory.open()
        entries = await fill(log, 25)
        for _ in range(3):
            await log_factory.restart()
            log = await log_factory.open()
            assert await log.tail() == entries[-1][0]
            assert await take(log, BEFORE_ALL, len(entries)) == entries
            entries += await fill(log, 3, name="more")

    async def test_what_a_follower_saw_is_there_after_a_restart(self, log_factory: LogFactory) -> None:
        """LG2: durable before it is shown, acknowledged or not."""
        log, other = await log_factory.open(), await log_factory.open()
        appends = [asyncio.ensure_future(log.append(entry)) for entry in named("shown", 10)]
        seen = await take(other, BEFORE_ALL, 1)
        await log_factory.restart()
        await asyncio.gather(*appends, return_exceptions=True)
        assert await take(await log_factory.open(), BEFORE_ALL, 1) == seen

    async def test_a_lost_reply_is_settled_by_appending_the_same_entry_again(self, log_factory: LogFactory) -> None:
        """LG4, R-044: both copies are in the log, in order; the machine knows a repeat."""
        log = await log_factory.open()
        before = await fill(log, 2, name="before")
        with pytest.raises(LostReply):
            await log_factory.append_with_lost_reply(log, b"unsure")
        again = await log.append(b"unsure")
        after = await fill(log, 2, name="after")
        entries = await take(log, BEFORE_ALL, 6)
        assert [entry for _, entry in entries] == [e for _, e in before] + [b"unsure"] * 2 + [e for _, e in after]
        assert entries[3] == (again, b"unsure")

    async def test_a_follower_may_begin_at_any_position(self, log_factory: LogFactory) -> None:
        """R-048."""
        log = await log_factory.open()
        entries = await fill(log, 30)
        for index, (position, _) in enumerate(entries[:-1]):
            assert await take(log, position, 29 - index) == entries[index + 1 :]

    async def test_a_follower_goes_on_through_lost_connections(self, log_factory: LogFactory) -> None:
        """LG1, R-048: no gap, nothing twice, while others append."""
        log = await log_factory.open()
        acked = await fill(log, 20)
        follower = asyncio.ensure_future(take(await log_factory.open(), BEFORE_ALL, 60))
        for round_number in range(4):
            await log_factory.disconnect()
            for entry in named(f"round{round_number}", 10):
                try:
                    acked.append((await log.append(entry), entry))
                except LostReply:  # the connection went while the answer was on its way
                    acked.append((await log.append(entry), entry))
        order = await take_upto(log, BEFORE_ALL, await log.tail())
        assert await follower == order[:60]
        assert [item for item in order if item in acked] == acked

    async def test_tail_covers_all_that_was_acknowledged_before_it_was_asked(self, log_factory: LogFactory) -> None:
        """LG3: asked through any handle, while others append; and it never names what is not there."""
        handles = [await log_factory.open() for _ in range(3)]
        acked = [0]
        asked: list[Position] = []
        done = asyncio.Event()

        async def appender(log: Log, name: str) -> None:
            for entry in named(name, 30):
                acked[0] = max(acked[0], await log.append(entry))

        async def asker(log: Log) -> None:
            while not done.is_set():
                floor = acked[0]
                answer = await log.tail()
                assert answer >= floor
                asked.append(answer)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            askers = [group.create_task(asker(log)) for log in handles]
            async with asyncio.TaskGroup() as writers:
                for number, log in enumerate(handles):
                    writers.create_task(appender(log, f"w{number}"))
            done.set()
            await asyncio.gather(*askers)
        there = {BEFORE_ALL} | {position for position, _ in await take(handles[0], BEFORE_ALL, 90)}
        assert set(asked) <= there

    async def test_trimmed_history_is_said_to_be_gone_and_the_rest_stays(self, log_factory: LogFactory) -> None:
        """R-048: an old follower is told, never led over a gap; the tail does not move."""
        log = await log_factory.open()
        entries = await fill(log, 60)
        cut = entries[49][0]
        await log.trim(cut)
        await log.trim(cut)  # again is fine
        with pytest.raises(Trimmed):
            await take(log, BEFORE_ALL, 1)
        with pytest.raises(Trimmed):
            await take(await log_factory.open(), BEFORE_ALL, 1)
        assert await log.tail() == entries[-1][0]
        assert await take(log, cut, 10) == entries[50:]
        assert await take(log, entries[54][0], 5) == entries[55:]

    async def test_after_trim_and_restart_the_sequence_goes_on(self, log_factory: LogFactory) -> None:
        log = await log_factory.open()
        entries = await fill(log, 60)
        await log.trim(entries[-1][0])
        await log_factory.restart()
        log = await log_factory.open()
        assert await log.tail() == entries[-1][0]
        with pytest.raises(Trimmed):
            await take(log, BEFORE_ALL, 1)
        more = await fill(log, 3, name="more")
        assert more[0][0] > entries[-1][0]
        assert await take(log, entries[-1][0], 3) == more

    async def test_a_waiting_follower_is_not_hurt_by_a_trim_behind_it(self, log_factory: LogFactory) -> None:
        log = await log_factory.open()
        entries = await fill(log, 60)
        stream = log.follow(entries[-2][0])
        assert await anext(stream) == entries[-1]
        waiting = asyncio.ensure_future(anext(stream))
        await log.trim(entries[-1][0])
        position = await log.append(b"behind the trim")
        async with asyncio.timeout(DEADLINE_S):
            assert await waiting == (position, b"behind the trim")
        await aclose(stream)

    async def test_sizes_are_checked_before_anything_is_written(self, log_factory: LogFactory) -> None:
        """LG4, R-053: the largest entry passes; one byte more, or none at all, is surely not in the log."""
        log = await log_factory.open()
        largest = random.Random(7).randbytes(log_factory.max_entry_bytes)
        with pytest.raises(NotAppended):
            await log.append(largest + b"!")
        with pytest.raises(NotAppended):
            await log.append(b"")
        assert await log.tail() == BEFORE_ALL
        position = await log.append(largest)
        after = await log.append(b"small")
        assert await take(log, BEFORE_ALL, 2) == [(position, largest), (after, b"small")]

    async def test_close_ends_waiting_followers_and_refuses_appends(self, log_factory: LogFactory) -> None:
        log, other = await log_factory.open(), await log_factory.open()
        entries = await fill(log, 3)

        async def follow_to_the_end() -> list[tuple[Position, bytes]]:
            return [entry async for entry in log.follow(BEFORE_ALL)]

        ended = asyncio.ensure_future(follow_to_the_end())
        assert await take(other, BEFORE_ALL, 3) == entries
        await log.close()
        await log.close()  # again is fine
        async with asyncio.timeout(DEADLINE_S):
            assert await ended == entries[: len(ended.result())]
        with pytest.raises(NotAppended):
            await log.append(b"late")

    @pytest.mark.parametrize("seed", range(3))
    async def test_any_history_of_calls_matches_a_plain_list(self, log_factory: LogFactory, seed: int) -> None:
        """LG1-LG4 against the simplest model there is."""
        print("seed", seed)
        dice = random.Random(seed)
        log = await log_factory.open()
        model: list[tuple[Position, bytes]] = []
        cut = BEFORE_ALL
        for step in range(120):
            match dice.choices(["append", "burst", "tail", "follow", "trim", "restart"], [8, 3, 3, 5, 1, 1])[0]:
                case "append":
                    model += await fill(log, 1, dice.randrange(1, 200), f"s{step}")
                case "burst":
                    burst = named(f"b{step}", dice.randrange(2, 12))
                    model += sorted(zip(await asyncio.gather(*map(log.append, burst)), burst, strict=True))
                case "tail":
                    assert await log.tail() == (model[-1][0] if model else BEFORE_ALL)
                case "follow" if model:
                    start = dice.randrange(len(model) + 1)
                    after = model[start - 1][0] if start else BEFORE_ALL
                    try:
                        assert await take(log, after, len(model) - start) == model[start:]
                    except Trimmed:
                        assert after < cut
                case "trim" if model:
                    cut = max(cut, dice.choice(model)[0])
                    await log.trim(cut)
                case "restart":
                    await log_factory.restart()
                    log = await log_factory.open()

    async def test_a_writer_that_slept_through_a_trim_goes_on_behind_the_tail(self, log_factory: LogFactory) -> None:
        """LG1: a position is never given twice, whatever was trimmed meanwhile."""
        sleeper, other = await log_factory.open(), await log_factory.open()
        await fill(sleeper, 3)
        entries = await fill(other, 60, name="other")
        await other.trim(entries[-1][0])
        position = await sleeper.append(b"awake")
        assert position > entries[-1][0]
        assert await take(other, entries[-1][0], 1) == [(position, b"awake")]
        assert await take(sleeper, entries[-1][0], 1) == [(position, b"awake")]
        assert await sleeper.tail() == await other.tail() == position

    async def test_the_tail_is_where_a_follower_arrives(self, log_factory: LogFactory) -> None:
        """LG3: whatever other logs of the engine do, and after a trim; nobody waits for ever for the tail."""
        log, other = await log_factory.open(), await log_factory.open_other()
        after = BEFORE_ALL
        for number in range(4):
            entries = await fill(log, 5, name=f"r{number}")
            beside = await fill(other, 3, name=f"o{number}")
            tail = await log.tail()
            assert await take_upto(log, after, tail) == entries
            assert [entry for _, entry in await take_upto(other, beside[0][0], await other.tail())] == [
                entry for _, entry in beside[1:]
            ]
            after = tail
        await log.trim(after)
        await fill(other, 3, name="last")
        assert await log.tail() == after

    async def test_an_event_that_is_lost_leaves_no_hole(self, log_factory: LogFactory) -> None:
        """LG1: by the next entry at the latest a follower has what it was not told of, in its place."""
        log, other = await log_factory.open(), await log_factory.open()
        entries = await fill(log, 3)
        stream = other.follow(BEFORE_ALL)
        async with asyncio.timeout(DEADLINE_S):
            assert [await anext(stream) for _ in entries] == entries
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            unheard = (await log_factory.append_unheard(log, b"unheard"), b"unheard")
            heard = await fill(log, 2, name="heard")
            assert await waiting == unheard
            assert [await anext(stream) for _ in heard] == heard
        await aclose(stream)


class FullLogContract:
    """For engines that can be full."""

    async def test_a_full_engine_refuses_shows_what_it_has_and_goes_on_when_there_is_room(
        self, log_factory: FullLogFactory
    ) -> None:
        """LG4: what was refused is surely not there; reading and trimming need no room."""
        log = await log_factory.open()
        entries = await fill(log, 60)
        await log_factory.fill_up()
        for number in range(3):
            with pytest.raises(NotAppended):
                await log.append(b"no room %d" % number + bytes(1000))
        assert await log.tail() == entries[-1][0]
        assert await take(log, BEFORE_ALL, 60) == entries
        await log.trim(entries[49][0])
        with pytest.raises(Trimmed):
            await take(log, BEFORE_ALL, 1)
        await log_factory.make_room()
        more = await fill(log, 3, name="more")
        assert await take_upto(log, entries[54][0], await log.tail()) == entries[55:] + more


class BeginningLogContract:
    """For engines that a cluster can be moved to."""

    async def test_an_empty_log_goes_on_where_another_one_ended(self, log_factory: LogFactory) -> None:
        """MV2: what lies before is said to be gone; to say it again is harmless; a used log is refused."""
        log = await log_factory.open()
        assert isinstance(log, BeginsBehind)
        for _ in range(2):
            await log.begin_behind(Position(1_000))
        assert await log.tail() == 1_000
        entries = await fill(log, 3)
        assert [position for position, _ in entries] == [1_001, 1_002, 1_003]
        for handle in (log, await log_factory.open()):
            assert await take(handle, 1_000, 3) == entries
            with pytest.raises(Trimmed):
                await take(handle, 999, 1)
            with pytest.raises(Conflict):
                await handle.begin_behind(Position(1_000))  # type: ignore[attr-defined]
        await log_factory.restart()
        again = await log_factory.open()
        await again.trim(Position(1_002))
        assert await take(again, 1_002, 1) == entries[2:]


class SharedLogContract:
    """For engines that no process of ours keeps."""

    @pytest.mark.parametrize("left", [0, 2])
    async def test_an_engine_that_went_back_is_told_and_no_position_goes_back(
        self, log_factory: SharedLogFactory, left: int
    ) -> None:
        """LG25: wiped, or restored from what it was earlier, under handles that have read more."""
        log = await log_factory.open()
        entries = await fill(log, 5)
        stream = log.follow(BEFORE_ALL)
        async with asyncio.timeout(DEADLINE_S):
            assert [await anext(stream) for _ in entries] == entries
            await log_factory.go_back(entries[left - 1][0] if left else BEFORE_ALL)
            with pytest.raises(Corrupt, match="backup"):
                await anext(stream)

    async def test_processes_that_write_at_once_make_one_order(self, log_factory: SharedLogFactory) -> None:
        """LG1, LG3, R-042: not handles of one process, but processes."""
        each, names = 40, ("left", "right")
        log = await log_factory.open()
        follower = asyncio.ensure_future(take(log, BEFORE_ALL, each * len(names)))
        writers = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.log.writer", log_factory.url, str(log_factory.domain), name, str(each),
                stdout=asyncio.subprocess.PIPE, cwd=ROOT,
            )
            for name in names
        ]  # fmt: skip
        said = [(await writer.communicate())[0] for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0]
        order = await follower
        assert [await take(await log_factory.open(), BEFORE_ALL, each * 2), await log.tail()] == [order, order[-1][0]]
        for name, positions in zip(names, said, strict=True):
            own = [(position, entry) for position, entry in order if entry.startswith(name.encode())]
            assert own == list(zip(map(int, positions.split()), named(name, each), strict=True))


class NeighbourLogContract:
    """For engines that keep the logs of several clusters."""

    async def test_two_clusters_on_one_engine_do_not_see_each_other(self, log_factory: NeighbourLogFactory) -> None:
        """R-052: what one of them writes, trims or loses is nothing to the other."""
        ours, theirs = await log_factory.open(), await log_factory.open_neighbour()
        entries, others = await fill(ours, 5, name="ours"), await fill(theirs, 3, name="theirs")
        assert await take(ours, BEFORE_ALL, 5) == entries
        await ours.trim(entries[3][0])
        assert await take(theirs, BEFORE_ALL, 3) == others
        await log_factory.go_back(BEFORE_ALL)
        others += await fill(theirs, 1, name="more")
        assert await take(theirs, BEFORE_ALL, 4) == others
        assert await theirs.tail() == others[-1][0]
