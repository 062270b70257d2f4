"""All scenarios by name. A run takes one of `SCENARIOS` by its seed; `PLANTED` hold a bug that must be found."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from dray.machine.garbage import Objects
from dray.machine.sessions import Sessions
from dray.machine.streams import Streams
from dray.machine.timeline import Timeline
from dray.replica.checkpointer import Checkpointer
from dray.replica.replica import Replica
from dray.replica.stall import StallWatch
from dray.replica.writer import Writer
from dray.sim import planted as bugs
from dray.sim.disk import FakeDisk, FakeFile
from dray.sim.log import FaultyLog
from dray.sim.planted import planted
from dray.sim.scenarios.appends import appends, commits, latest, renewals
from dray.sim.scenarios.checkpoints import checkpoints
from dray.sim.scenarios.garbage import Collector, garbage
from dray.sim.scenarios.local import local
from dray.sim.scenarios.ordering import Bug, ordering
from dray.sim.scenarios.rollback import rollback
from dray.sim.scenarios.sessions import sessions
from dray.sim.world import World

Scenario = Callable[[World], Coroutine[object, object, None]]

SCENARIOS: Final[dict[str, Scenario]] = {
    "appends": appends,
    "checkpoints": checkpoints,
    "commits": commits,
    "garbage": garbage,
    "latest": latest,
    "local": local,
    "ordering": ordering,
    "renewals": renewals,
    "rollback": rollback,
    "sessions": sessions,
}

PLANTED: Final[dict[str, Scenario]] = {
    **{f"ordering/{bug.value}": partial(ordering, bug=bug) for bug in Bug},
    "appends/no-n-check": planted(appends, (Sessions, "judge", bugs.without_n_check)),
    "appends/missed-entry": planted(appends, (FaultyLog, "follow", bugs.missing_one)),
    "appends/stalls-are-waited-for": planted(appends, (StallWatch, "stalled", bugs.never_stalled)),
    "commits/no-age": planted(commits, *bugs.OLD_COMMITS_ARE_SENT),
    "latest/no-tail-wait": planted(latest, (Replica, "sync", bugs.without_tail_wait)),
    "sessions/expired-may-write": planted(sessions, *bugs.EXPIRED_MAY_WRITE),
    "sessions/verdict-by-number": planted(sessions, (Writer, "is_mine", bugs.mine_by_number)),
    "sessions/time-is-believed": planted(sessions, (Timeline, "open", bugs.time_is_believed)),
    "sessions/expire-in-an-outage": bugs.wall_time_observer(sessions),
    "renewals/counters-again": planted(renewals, *bugs.COUNTERS_AGAIN),
    "garbage/session-from-nonce": planted(garbage, (Sessions, "new_id", bugs.id_from_nonce)),
    "garbage/expired-may-write": planted(garbage, *bugs.EXPIRED_MAY_WRITE),
    "garbage/object-of-an-older-session": planted(garbage, (Streams, "owns", bugs.owns_any_session)),
    "garbage/sweep-without-log-id": planted(garbage, (Collector, "is_orphan", bugs.orphan_of_any_log)),
    "garbage/forgotten-row": planted(garbage, (Objects, "release", bugs.release_too_much)),
    "checkpoints/trusts-dead-after-a-jump": planted(checkpoints, (Writer, "jumped", bugs.trusts_dead_after_a_jump)),
    "checkpoints/nobody-compares": planted(checkpoints, (Checkpointer, "_refold", bugs.refold_by_reading)),
    "local/ack-before-sync": planted(local, (FakeFile, "sync", bugs.sync_later)),
    "local/no-sync-at-open": planted(local, (FakeDisk, "open", bugs.open_without_sync)),
}
