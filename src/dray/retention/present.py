"""What time retention goes by, and which rows are too old for their topic.

Retention must never take what is young, whatever any clock says, and must not
wait for ever for a clock that nobody vouches for. What can be known:

    the log's time   sure time of the machine: it moves by time that writers
                     saw pass, and by opens that somebody vouched for; so it
                     is never ahead of the truth, but behind it by the time
                     when nobody ran
    arrival          the creation time of a row's object, on the same line
    the clock        of this machine: right as a rule, and sometimes ten years
                     off
    the timestamp    of a row, which clients set: by the same clock as the
                     broker's on a laptop

A row is too old if its timestamp is, by the log's time: that is Kafka's rule,
and all there is to it while clock and log agree. Where the log is behind the
clock, a row also goes when its timestamp is too old by the clock *and* it has
been in the log for its whole retention by the log's own time: after a month
in a drawer a laptop deletes what it lived through, and a clock ten years ahead
deletes nothing that was not kept as long as promised. A timestamp a week and
more in the future, which the topic would not have taken, was set by a wrong
clock and does not count: arrival does. Where arrival lies there too (a log that ran
ahead and was recovered), the row goes with the next one that arrived long
enough ago, because rows lie in the order of their arrival.

Where the log is ahead of the clock, one of both is wrong. Up to a day the
earlier one counts. Beyond that nothing goes by time until somebody says which
one is right: the operator, or a store with a clock of its own.

Invariants
    RT20  No row goes by time whose timestamp is younger than its topic's
          retention by the right clock, whatever clocks the brokers of this
          log were ever started with: provided that nobody vouched for a wrong
          one, and that the timestamp is not later than the row's arrival.
"""

from dataclasses import dataclass
from typing import Final

from dray.machine.machine import Machine
from dray.machine.stream import Stream

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
WEEK_MS: Final = 7 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a topic says about the age of its records, in ms."""

    retention_ms: int
    after_max_ms: int = HOUR_MS
    """How far ahead of the clock the topic takes timestamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The present, as far as retention may believe in it."""

    log_ms: int
    """The log's time, or the clock where that is earlier."""
    wall_ms: int


def is_ahead(machine: Machine, wall_ms: int) -> bool:
    """Is the log's time so far ahead of the clock that one of both is surely wrong?"""
    return machine.timeline.sure_ms - wall_ms > DAY_MS


def read_present(machine: Machine, wall_ms: int, *, vouched: bool) -> Present | None:
    """What to go by in a domain; None: nothing may go by time."""
    if is_ahead(machine, wall_ms) and not vouched:
        return None
    return Present(log_ms=min(machine.timeline.sure_ms, wall_ms), wall_ms=wall_ms)


def count_expired(machine: Machine, stream: Stream, bounds: Bounds, present: Present, limit: int) -> int:
    """How many rows at the front of a stream are too old (RT20); at most `limit`."""
    index = stream.index
    count = 0
    for upto in (1, min(limit, len(index))):  # most looks end at the first row
        rows = zip(index.stamps(upto), index.objects(upto), strict=True)
        for number, (stamp_ms, owner) in enumerate(rows):
            arrived_ms = machine.objects.arrived_ms(owner)
            expired = is_expired(stamp_ms, arrived_ms, bounds, present)
            if expired is False:
                return count
            if expired and (number == count or arrived_ms + bounds.retention_ms < present.log_ms):
                count = number + 1
    return count


def is_expired(stamp_ms: int, arrived_ms: int, bounds: Bounds, present: Present) -> bool | None:
    """Is a row too old (RT20)? Its timestamp may be anything; -1: it has none. None: nothing sane is known of it."""
    retention_ms = bounds.retention_ms
    stamp_ms = arrived_ms if stamp_ms < 0 else stamp_ms
    if stamp_ms + retention_ms < present.log_ms:
        return True
    latest_ms = max(present.log_ms, present.wall_ms) + max(WEEK_MS, bounds.after_max_ms)
    if arrived_ms + retention_ms >= present.log_ms:
        return None if stamp_ms > latest_ms and arrived_ms > latest_ms else False
    return stamp_ms + retention_ms < present.wall_ms or stamp_ms > latest_ms
