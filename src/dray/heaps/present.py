"""How late it is in a domain by this process's own clock: what its next entry would claim.

Machine time stands while nobody writes. Whoever waits for something that is
due must know when it is worth writing; the machine judges.
"""

from typing import NamedTuple

from dray.clock import Clock
from dray.machine.heaps.shard import Shard
from dray.machine.sessions import SessionKind
from dray.replica.replica import Replica


class DomainTime(NamedTuple):
    now_ms: int
    running_ms: int


def present(replica: Replica, clock: Clock) -> DomainTime:
    """What an entry of this process would make of machine time and running time."""
    timeline = replica.machine.timeline
    session = replica.session
    line = None if session is None else replica.machine.sessions.live.get(session.id)
    if session is None or line is None:
        return DomainTime(timeline.time_ms, timeline.running_ms)
    claimed_ms = session.time_ms(clock.boot_ns())
    running_ms = line.running_base_ms + claimed_ms - line.lead_ms
    return DomainTime(max(timeline.time_ms, claimed_ms), max(timeline.running_ms, running_ms))


def due_in_ms(shard: Shard, at: DomainTime) -> int | None:
    """How long until a delay or a lease of the shard ends; 0 or less: it has. None: there is none."""
    delay_ms, deadline_ms = shard.messages.next_due_ms(), shard.leases.next_end_ms()
    left = []
    if delay_ms is not None:
        left.append(delay_ms - at.now_ms)
    if deadline_ms is not None:
        left.append(deadline_ms - at.running_ms)
    return min(left, default=None)


def is_oldest(replica: Replica) -> bool:
    """Is this the oldest broker that is heard? It does what one is enough for."""
    own = replica.session
    brokers = [one.id for one in replica.machine.sessions.live.values() if one.kind is SessionKind.BROKER]
    heard = [number for number in brokers if not replica.is_silent(number)]
    return own is not None and own.id == min(heard, default=own.id)
