"""The shards of a domain, as one noun: each is a heap's messages.

Which heaps there are is told by the catalog (`dray.machine.heaps.catalog`); a
shard is opened and closed by the heap's saga. Its id is a stream's, from the
same counter, so it names chunks of objects and wake-ups as a stream does.

Invariants
    DD2  The id of a message (domain, begun, number, sequence) is given once.
    HB1  Bodies in the state of a domain are at most 16 MiB.
    HB2  No log line, view or metric shows a body, a nonce or a header.
    HS1  A closed shard is never opened again, and grants and takes nothing.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import ClassVar, Final, Protocol

from dray.machine.command import MAX_ROWS, Command
from dray.machine.garbage import Objects
from dray.machine.head import Head
from dray.machine.heaps import operators
from dray.machine.heaps.answers import Enqueued
from dray.machine.heaps.batches import BatchDecisions, Finish, Prepare
from dray.machine.heaps.commands import (
    Bury,
    CloseShard,
    Drop,
    OpenShard,
    Purge,
    Replay,
    ShardClosed,
    Spilled,
    Tick,
    Ticked,
)
from dray.machine.heaps.config import Mode, pack_config, unpack_config
from dray.machine.heaps.heirs import LeaseHeirs, LeaseOrphan
from dray.machine.heaps.history import HeapHistories, ShardHistory
from dray.machine.heaps.messages import Inline
from dray.machine.heaps.packets import IN_OBJECT, Enqueue, Lease, Settle, Spill
from dray.machine.heaps.rows import DEAD, DELAYED, LEASED, READY
from dray.machine.heaps.shard import HeapMoment, Numbers, Shard
from dray.machine.keys import Shape
from dray.machine.names import SessionId, StreamId, domain_of, is_made_by, parse_wal_id
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import Sessions
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Refused, Verdict, Why, refused
from dray.objects.paths import ObjectKind

SHARD_KEY: Final = Shape("shards/#")
MAX_DOMAIN: Final = (1 << 12) - 1
"""What of a domain fits into the id of a message."""


class HeapsCatalog(Protocol):
    """What a shard asks about the heap that it is to belong to."""

    def has_shard(self, heap_id: bytes, shard: StreamId) -> bool: ...


class Heaps:
    """The shards of a domain."""

    name: ClassVar[str] = "shards"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (
        OpenShard, CloseShard, Enqueue, Lease, Settle, Tick, Spill, Bury, Replay, Drop, Purge, Prepare,
        Finish,
    )  # fmt: skip

    def __init__(
        self, head: Head, timeline: Timeline, sessions: Sessions, objects: Objects, decisions: BatchDecisions,
        histories: HeapHistories,
    ) -> None:  # fmt: skip
        self.catalog: HeapsCatalog | None = None
        """Where the catalog is at hand, it says which shards there are."""
        self.all: dict[StreamId, Shard] = {}
        """Open shards, and closed ones that still have rows."""
        self.inline = Inline()
        self._numbers = Numbers()
        self._heirs = LeaseHeirs()
        self._closed: array[int] = array("Q")
        """Forgotten shards, sorted, so that none is opened twice (HS1)."""
        self._head = head
        self._timeline = timeline
        self._sessions = sessions
        self._objects = objects
        self._decisions = decisions
        self._histories = histories
        histories.loaded = self._link

    def find(self, number: StreamId) -> Shard | None:
        return self.all.get(number)

    def is_open(self, number: StreamId) -> bool:
        shard = self.all.get(number)
        return shard is not None and not shard.closed

    def __iter__(self) -> Iterator[Shard]:
        for _, shard in sorted(self.all.items()):
            yield shard

    def apply(self, step: Step, command: Command) -> Verdict:
        match command:
            case (
                Enqueue() | Lease() | Settle() | Tick() | Spill() | Bury() | Replay() | Drop() | Purge() | Prepare()
                | Finish()
            ):  # fmt: skip
                shard = self.all.get(command.shard)
                if shard is None:
                    return refused(Why.NOT_FOUND, "no such shard")
                verdict = self._change(step, shard, command)
            case OpenShard():
                return self._open(step, command)
            case CloseShard():
                return self._close(step, command)
            case _:
                return stray(command)
        self._release(step, shard)
        step.streams.append(shard.id)
        return verdict

    def session_ended(self, step: Step, session: SessionId) -> None:
        """A lease outlives the broker that gave it: its consumer may be well. Another's clock counts then (L8)."""
        for ended in step.ended:
            if ended.session == session:
                orphan = LeaseOrphan(ended.clock_ms, step.position, self._timeline.running_ms)
                self._heirs.ended(session, orphan)

    def _change(
        self,
        step: Step,
        shard: Shard,
        command: Enqueue | Lease | Settle | Tick | Spill | Bury | Replay | Drop | Purge | Prepare | Finish,
    ) -> Verdict:
        time, live = self._timeline, self._sessions.live
        if self._heirs.has_orphans:
            self._heirs.take_over(step.session, live[step.session].clock_ms, step.seen, time.running_ms)
        moment = HeapMoment(
            time.time_ms, time.running_ms, time.paused, step.session, live, self._heirs, step.spare
        )  # fmt: skip
        if shard.messages.history is not None:
            shard.messages.history.begin(step.position, time.time_ms)
        match command:
            case Enqueue() | Prepare():
                return self._enqueue(step, shard, command, moment)
            case Finish():
                return self._finish(step, shard, command, moment)
            case Lease():
                return self._lease(step, shard, command, moment)
            case Settle():
                settled = shard.settle(command, moment)
                step.given.extend(settled.codes)
                return settled
            case Spill():
                return self._spill(step, shard, command)
            case Tick() | Bury() | Replay() | Drop() | Purge():
                return self._operate(step, shard, command, moment)

    def _operate(
        self, step: Step, shard: Shard, command: Tick | Bury | Replay | Drop | Purge, moment: HeapMoment
    ) -> Verdict:
        if shard.closed:
            return refused(Why.STATE, "the heap is being deleted")
        history = shard.messages.history
        if history is not None and history.room < MAX_ROWS and not isinstance(command, Tick):
            return refused(Why.LIMIT, "the heap's history is not told so fast")  # HI2
        match command:
            case Tick():
                return self._tick(step, shard, command, moment)
            case Bury():
                return operators.bury(shard, command, moment)
            case Replay() | Drop() | Purge():
                return self._slice(step, shard, command, moment)

    def _enqueue(self, step: Step, shard: Shard, command: Enqueue | Prepare, moment: HeapMoment) -> Verdict:
        messages = command.part if isinstance(command, Prepare) else command
        in_object = bool(messages.flags & IN_OBJECT)
        if isinstance(command, Prepare) and command.batch in shard.batches.all:
            return refused(Why.EXISTS, "the batch is prepared here")
        denied = self._deny(step, messages) if in_object else None
        if denied is not None:
            return denied
        place = self._objects.next + 1 if in_object else 0
        if isinstance(command, Prepare):
            enqueued = shard.prepare(command, moment, place)
        else:
            enqueued = shard.enqueue(command, moment, place)
        if in_object:
            self._record(step, messages, _taken(enqueued))
        step.body_bytes += len(messages.bodies)
        step.given.append(shard.next_arrival)
        step.given.extend(given.slot for given in enqueued.given)
        return enqueued

    def _finish(self, step: Step, shard: Shard, command: Finish, moment: HeapMoment) -> Verdict:
        """Whoever finishes a batch was told its decision; where it was made here, that is looked at, too (BA1)."""
        prepared = shard.batches.all.get(command.batch)
        if prepared is None:
            return DONE
        if len(prepared.slots) > command.rows:
            return refused(Why.LIMIT, "more is prepared than may be touched")  # M7
        committed = command.batch in self._decisions.committed
        if prepared.home == self._head.domain and command.commit != committed:
            return refused(Why.STATE, "the batch was not decided so")
        step.given.append(shard.finish(command, moment))
        return DONE

    def _lease(self, step: Step, shard: Shard, command: Lease, moment: HeapMoment) -> Verdict:
        before = shard.messages.totals.granted
        granted, spare = shard.lease(command, moment, want=step.want)
        step.spare = spare  # M7
        step.given.append(shard.messages.totals.granted - before)
        return granted

    def _tick(self, step: Step, shard: Shard, command: Tick, moment: HeapMoment) -> Verdict:
        limit = min(command.limit, step.spare)
        done = shard.tick(moment, limit)
        step.spare -= done  # M7
        return Ticked(done=done, more=done >= limit)

    def _spill(self, step: Step, shard: Shard, command: Spill) -> Verdict:
        denied = self._deny(step, command)
        if denied is not None:
            return denied
        spilled = Spilled(named=0) if shard.closed else operators.spill(shard, command, self._objects.next + 1)
        self._record(step, command, spilled.named)
        return spilled

    def _slice(self, step: Step, shard: Shard, command: Replay | Drop | Purge, moment: HeapMoment) -> Verdict:
        if isinstance(command, Purge):
            step.spare -= min(command.limit, step.spare)  # M7
            return operators.purge(shard, command, moment)
        if command.messages:
            moment = moment._replace(spare=MAX_ROWS)  # they were counted by `needs`
        act = operators.replay if isinstance(command, Replay) else operators.drop
        moved = act(shard, command, moment)  # type: ignore[arg-type]
        if not command.messages:
            step.spare -= moved.count  # M7
        return moved

    # -- objects -----------------------------------------------------------

    def _deny(self, step: Step, command: Enqueue | Spill) -> Refused | None:
        """Why an object is not taken, as for streams."""
        if not is_made_by(command.wal_id, self._head.log_id, step.session):
            return refused(Why.FOREIGN, "the object was written by another session or log")
        if not self._sessions.live[step.session].may_commit_wal(parse_wal_id(command.wal_id).counter):
            return refused(Why.EXISTS, "the object was committed before, or is too old to know")  # X5
        if not self._objects.has_room(ObjectKind.WAL, self._head.log_id, command.zone):
            return refused(Why.LIMIT, "too many zones")
        return None

    def _record(self, step: Step, command: Enqueue | Spill, rows: int) -> None:
        """The object is recorded whatever became of its bodies (X1)."""
        counter = parse_wal_id(command.wal_id).counter
        self._sessions.live[step.session].commit_wal(counter)
        owner = self._objects.record(
            ObjectKind.WAL, log_id=self._head.log_id, session=step.session, counter=counter, size=command.size,
            created_ms=command.created_ms, zone=command.zone, rows=rows,
        )  # fmt: skip
        if not rows:
            self._objects.die(step, owner)

    def _release(self, step: Step, shard: Shard) -> None:
        """What rows let go of in this command (X1)."""
        if shard.messages.let_go:
            self._objects.release(step, shard.messages.let_go)
            shard.messages.let_go = []

    # -- the heap's saga ---------------------------------------------------

    def is_closed(self, number: StreamId) -> bool:
        at = bisect_left(self._closed, number)
        return at < len(self._closed) and self._closed[at] == number

    def _open(self, step: Step, command: OpenShard) -> Verdict:
        if domain_of(command.shard) != self._head.domain or self._head.domain > MAX_DOMAIN:
            return refused(Why.FOREIGN, "the shard belongs to another domain")  # T1
        if self._head.is_catalog and not self._is_wanted(command):
            return refused(Why.NOT_FOUND, "the heap is gone, or has no such shard")
        if self.is_closed(command.shard):
            return refused(Why.STATE, "the shard was closed")  # HS1
        shard = self.all.get(command.shard)
        if shard is None:
            shard = self.all[command.shard] = Shard(command, self.inline, self._numbers)
            self._keep_history(shard, command)
        elif shard.closed or (shard.heap_id, shard.messages.mode) != (command.heap_id, command.mode):
            return refused(Why.EXISTS, "the shard is closed or belongs to another heap")
        elif command.revision > shard.revision:
            shard.configure(command)
            self._keep_history(shard, command)
        step.streams.append(command.shard)
        return DONE

    def _keep_history(self, shard: Shard, command: OpenShard) -> None:
        shard.messages.history = self._histories.configure(shard.id, command.config.history, command.name)

    def _link(self, number: StreamId, history: ShardHistory) -> None:
        """A history came out of a checkpoint; shards come first."""
        shard = self.all.get(number)
        if shard is not None and not shard.closed and shard.messages.config.history:
            shard.messages.history = history

    def _is_wanted(self, command: OpenShard) -> bool:
        return self.catalog is None or self.catalog.has_shard(command.heap_id, command.shard)

    def _close(self, step: Step, command: CloseShard) -> Verdict:
        if domain_of(command.shard) != self._head.domain:
            return refused(Why.FOREIGN, "the shard belongs to another domain")  # T1
        if self.is_closed(command.shard):
            return ShardClosed(left=0)
        shard = self.all.get(command.shard)
        if shard is None:
            # The saga that would open it may still be under way: it comes too late (HS1).
            insort(self._closed, command.shard)
            return ShardClosed(left=0)
        if not shard.closed:
            shard.closed = True
            written = shard.messages.history is not None
            self._histories.close(shard.id, step.position, self._timeline.time_ms, written=written)
            shard.messages.history = None
            step.streams.append(shard.id)
        gone, left = operators.close(shard, min(command.limit, step.spare))
        step.spare -= gone  # M7
        self._release(step, shard)
        if not left:
            del self.all[shard.id]
            insort(self._closed, shard.id)
        return ShardClosed(left=left)

    def cap_times(self, latest_ms: int) -> None:
        """Let no message be younger than a time: for a log that begins anew."""
        for shard in self.all.values():
            rows = shard.messages.rows
            for slot, row in list(rows.all()):
                rows.set_enqueued(slot, min(row.enqueued_ms, latest_ms))
                if row.state == DEAD:
                    rows.set_due(slot, min(row.due_ms, latest_ms))

    # -- checkpoint --------------------------------------------------------

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.all), self._numbers.next])
        out.column(self._closed)
        self._heirs.dump(out)
        for shard in self:
            out.values([
                shard.id, shard.heap_id, int(shard.messages.mode), shard.partitions, shard.revision,
                int(shard.closed), shard.next_arrival, shard.anonymous, shard.anonymous_seq,
                pack_config(shard.messages.config),
            ])  # fmt: skip
            shard.messages.dump(out, closed=shard.closed)
            shard.leases.dump(out, closed=shard.closed)
            shard.dedup.dump(out)
            shard.tombs.dump(out)
            shard.batches.dump(out)

    def load(self, source: Reader, version: int) -> None:
        count, self._numbers.next = source.ints(2)
        self._closed = source.column("Q")
        self._heirs.load(source)
        for _ in range(count):
            row = source.row()
            number, heap_id, mode, partitions, revision = (
                StreamId(row.number()), row.raw(), Mode(row.number()), row.number(), row.number(),
            )  # fmt: skip
            closed, next_arrival, anonymous, anonymous_seq = (row.number() for _ in range(4))
            opening = OpenShard(
                shard=number, heap_id=heap_id, mode=mode, partitions=partitions, revision=revision,
                config=unpack_config(row.raw()),
            )  # fmt: skip
            shard = self.all[number] = Shard(opening, self.inline, self._numbers)
            shard.closed, shard.next_arrival = bool(closed), next_arrival
            shard.anonymous, shard.anonymous_seq = anonymous, anonymous_seq
            shard.messages.load(source, closed=shard.closed)
            shard.leases.load(source)
            shard.dedup.load(source)
            shard.tombs.load(source)
            shard.batches.load(source)

    def show(self, prefix: str) -> Listing:
        for shard in self:
            yield SHARD_KEY.build(shard.id), _fields(shard)


def _taken(enqueued: Enqueued) -> int:
    return sum(given.slot >= 0 for given in enqueued.given)


def _fields(shard: Shard) -> Fields:
    counts, totals = shard.messages.rows.counts, shard.messages.totals
    return {
        "heapId": shard.heap_id.hex(), "mode": shard.messages.mode.name, "partitions": shard.partitions,
        "revision": shard.revision, "state": "CLOSED" if shard.closed else "OPEN",
        "ready": counts[READY], "delayed": counts[DELAYED], "leased": counts[LEASED], "dead": counts[DEAD],
        "undecidedBatches": len(shard.batches.all), "inlineBytes": shard.messages.inline_bytes,
        "dedupEntries": shard.dedup.count,
        "nextArrival": shard.next_arrival,
        "nextDelayMs": shard.messages.next_due_ms(), "nextDeadlineRunningMs": shard.leases.next_end_ms(),
        "forgetsRunningMs": [
            shard.dedup.next_end_ms(shard.messages.config.dedup_window_ms), shard.tombs.oldest_ms(),
        ],
        "totals": dict(zip(totals.__slots__, totals.values(), strict=True)),
    }  # fmt: skip
