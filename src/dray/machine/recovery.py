"""A new log that begins with the state of a lost one (Q6).

When the end of a log is lost (damage, an old copy restored), going on under
its log id would give positions, offsets and producer ids a second time while
somebody may still remember the first. So the state that could be saved
becomes the beginning of a *new* log: another log id, the next generation,
nobody's session. This is the one change of state that no entry makes; its
result is only ever used as the first checkpoint of that new log.

It is also the way back for a log whose time ran ahead, because somebody
vouched for a wrong clock: time never runs back within a log (Q7), but a new
one may begin earlier. It takes its time from the newest record that the
present clock has passed, and nothing of the old log keeps a time of the future.

Invariants
    RN1  In a renewed log nothing that time takes away (committed offsets,
         groups, producers, dead objects, ended sessions, messages) has a time after the log's.
    RN2  A renewed log knows where each open stream ended in every generation
         before, so that a consumer finds out what was lost.
"""

from dataclasses import replace
from typing import Final

from dray.machine import producers
from dray.machine.machine import Machine
from dray.machine.names import NOBODY, LogId
from dray.machine.step import EndReason, Step
from dray.machine.streams import MINUTE_MS

AHEAD_MS: Final = 86_400_000
"""A log this far ahead of the clock, or further, is taken for one that ran ahead."""


def renew(machine: Machine, log_id: LogId, wall_ms: int) -> None:
    """Make a saved state the beginning of the log `log_id`; `wall_ms` is what the operator's clock says."""
    if machine.timeline.sure_ms - wall_ms > AHEAD_MS:
        _set_time(machine, newest_record_ms(machine, wall_ms))
    step = Step(machine.position, NOBODY)
    for session in sorted(machine.sessions.live):
        machine.end(step, session, EndReason.EXPIRED)
    machine.confirmations.marks.clear()
    machine.groups.forget_positions()
    machine.head.log_id = log_id
    machine.generations.end()  # RN2
    machine.head.generation += 1
    machine.producer_ids.begin()
    machine.digest = int.from_bytes(log_id, "little")


def newest_record_ms(machine: Machine, wall_ms: int) -> int:
    """The newest time that records tell and the clock has passed; the clock itself if there is none."""
    times = [max((stamp for stamp in stream.index.stamps(len(stream.index)) if stamp <= wall_ms), default=-1)
             for stream in machine.streams.open.values()]  # fmt: skip
    newest = max(times, default=-1)
    return max(0, newest if newest >= 0 else wall_ms)


def _set_time(machine: Machine, time_ms: int) -> None:
    """Let time begin anew, and cut every time that something will be judged by to it (RN1)."""
    machine.timeline.restart(time_ms)
    for number, death in machine.objects.dead.items():
        machine.objects.dead[number] = replace(death, time_ms=min(death.time_ms, time_ms))
    for session, ended in machine.sessions.ended.items():
        machine.sessions.ended[session] = replace(ended, time_ms=min(ended.time_ms, time_ms))
    for stream in machine.streams.open.values():
        stream.opened_ms = min(stream.opened_ms, time_ms)
        producers.cap_used(stream.producers, time_ms // MINUTE_MS)
    for topic in machine.topics.all.values():
        topic.created_ms, topic.changed_ms = min(topic.created_ms, time_ms), min(topic.changed_ms, time_ms)
        topic.opened_ms = [min(opened_ms, time_ms) for opened_ms in topic.opened_ms]
    machine.offsets.cap_times(time_ms)
    machine.groups.cap_times(time_ms)
    machine.heaps.cap_times(time_ms)
    machine.histories.cap_times(time_ms)
    machine.heap_catalog.cap_times(time_ms)
    machine.access.cap_times(time_ms)
