"""A new log that begins with the state of a lost one (Q6).

When the end of a log is lost (damage, an old copy restored), going on under
its log id would give positions, offsets and producer ids a second time while
somebody may still remember the first. So the state that could be saved
becomes the beginning of a *new* log: another log id, the next generation,
nobody's session. This is the one change of state that no entry makes; its
result is only ever used as the first checkpoint of that new log.
"""

from dray.machine.machine import Machine
from dray.machine.names import NOBODY, LogId
from dray.machine.step import EndReason, Step


def renew(machine: Machine, log_id: LogId) -> None:
    """Make a saved state the beginning of the log `log_id`."""
    step = Step(machine.position, NOBODY)
    for session in sorted(machine.sessions.live):
        machine.end(step, session, EndReason.EXPIRED)
    machine.confirmations.marks.clear()
    machine.head.log_id = log_id
    machine.head.generation += 1
    machine.producer_ids.begin()
    machine.digest = int.from_bytes(log_id, "little")
