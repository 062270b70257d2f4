"""What operators and housekeepers do to a shard's messages, by their names or in slices.

Whoever names a message found it before, so its slot may be another's by now:
slot and arrival are checked, and what is gone is no mistake.
"""

from itertools import islice

from dray.machine.heaps.answers import ALREADY, DONE, GONE, LOST
from dray.machine.heaps.commands import Buried, Bury, Drop, MessageRef, Moved, Purge, Purged, Replay, Spilled
from dray.machine.heaps.history import EventKind
from dray.machine.heaps.packets import SPILL_ROW, Spill
from dray.machine.heaps.rows import DEAD, LEASED, PREPARED
from dray.machine.heaps.shard import HeapMoment, Shard


def spill(shard: Shard, command: Spill, place: int) -> Spilled:
    """Bodies lie in the object `place` from now on, wherever they lay before (L12)."""
    messages = shard.messages
    named = 0
    for slot, arrival, position, length in SPILL_ROW.iter_unpack(command.packed):
        fits = position + length <= command.size
        if fits and messages.rows.holds(slot, arrival) and messages.rows.length(slot) == length:
            messages.move_body(slot, place, position)
            named += 1
    return Spilled(named=named)


def bury(shard: Shard, command: Bury, moment: HeapMoment) -> Buried:
    return Buried(codes=tuple(_bury_one(shard, ref, command, moment) for ref in command.messages))


def _bury_one(shard: Shard, ref: MessageRef, command: Bury, moment: HeapMoment) -> int:
    messages = shard.messages
    if not messages.rows.holds(ref.slot, ref.arrival):
        return GONE
    state = messages.rows.state(ref.slot)
    if state == PREPARED:
        return GONE  # BA2
    if state == DEAD:
        return ALREADY
    if state == LEASED:
        if not command.force:
            return LOST
        shard.leases.end(ref.slot)
    else:
        messages.leave_lists(ref.slot)
    if command.note:
        messages.notes[ref.slot] = command.note
    messages.note_down(ref.slot, EventKind.BURIED, who=command.actor, note=command.note)
    messages.die(ref.slot, moment.now_ms)
    return DONE


def replay(shard: Shard, command: Replay, moment: HeapMoment) -> Moved:
    """Dead messages become ready (L3)."""
    messages = shard.messages
    slots = _dead_ones(shard, command.messages, min(command.limit, moment.spare))
    for slot in slots:
        del messages.dead[slot]
        if not command.keep_time:
            messages.rows.set_arrival(slot, shard.next_arrival)
            messages.rows.set_enqueued(slot, moment.now_ms)
            shard.next_arrival += 1
        if command.priority is not None:
            messages.rows.set_priority(slot, command.priority)
        messages.rows.set_attempts(slot, 0, messages.rows.attempts(slot)[1])
        messages.notes.pop(slot, None)
        messages.settled.pop(slot, None)
        messages.make_ready(slot)
        messages.note_down(slot, EventKind.REPLAYED, who=command.actor)
    messages.totals.replayed += len(slots)
    return Moved(count=len(slots), left=0 if command.messages else len(messages.dead))


def drop(shard: Shard, command: Drop, moment: HeapMoment) -> Moved:
    messages = shard.messages
    if command.expired:
        slots = _expired_ones(shard, command.messages, moment)
    else:
        slots = _dead_ones(shard, command.messages, min(command.limit, moment.spare))
    kind = EventKind.OUTDATED if command.expired else EventKind.DELETED
    for slot in slots:
        messages.note_down(slot, kind, who=command.actor)
        messages.leave_lists(slot)
        messages.remove(slot)
    messages.totals.dropped += len(slots)
    return Moved(count=len(slots), left=0 if command.messages or command.expired else len(messages.dead))


def purge(shard: Shard, command: Purge, moment: HeapMoment) -> Purged:
    """Everything that arrived before, in some slots: what comes meanwhile is not touched."""
    messages = shard.messages
    limit = min(command.limit, moment.spare)
    end = min(command.start + limit, messages.rows.slots)
    count = 0
    for slot, row in list(messages.rows.all(command.start, end)):
        if row.arrival >= command.upto or row.state == PREPARED:  # BA2
            continue
        if row.state == LEASED:
            if not command.include_leased:
                continue
            shard.leases.end(slot)
        elif row.state == DEAD and not command.include_dead:
            continue
        else:
            messages.leave_lists(slot)
        messages.note_down(slot, EventKind.PURGED, who=command.actor)
        messages.remove(slot)
        count += 1
    messages.totals.dropped += count
    return Purged(count=count, next_start=end if 0 < end < messages.rows.slots else -1)


def close(shard: Shard, limit: int) -> tuple[int, int]:
    """Drop what a closed shard holds, in slices: how many rows went, and how many are left."""
    shard.batches.clear()
    gone = shard.messages.cut(limit)
    shard.leases.cut(limit)
    forgotten = shard.dedup.cut(limit - gone)
    return gone + forgotten, shard.messages.rows.slots + shard.dedup.count


def _dead_ones(shard: Shard, named: tuple[MessageRef, ...], limit: int) -> list[int]:
    """Those of the named that are dead, or the oldest dead."""
    messages = shard.messages
    if not named:
        return list(islice(messages.dead, limit))
    found = (ref.slot for ref in named if messages.rows.holds(ref.slot, ref.arrival))
    return list(dict.fromkeys(slot for slot in found if slot in messages.dead))


def _expired_ones(shard: Shard, named: tuple[MessageRef, ...], moment: HeapMoment) -> list[int]:
    """Those of the named that wait and are past their time, which must be sure (Q7)."""
    rows, ttl_ms = shard.messages.rows, shard.messages.config.message_ttl_ms
    if not ttl_ms or moment.paused:
        return []
    found = dict.fromkeys(ref.slot for ref in named if rows.holds(ref.slot, ref.arrival))
    return [
        slot
        for slot in found
        if rows.state(slot) not in (LEASED, DEAD, PREPARED) and rows.enqueued_ms(slot) <= moment.now_ms - ttl_ms
    ]
