"""Does everybody get on once the faults are over? no-progress.

While no fault is active, a process that keeps trying has a success within the
bound, counted from the end of the last fault, from its last success, or from
its first try, whichever came last.
"""

from collections.abc import Iterator
from itertools import pairwise

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.events import Call, Crashed, CreateTopic, DeleteTopic, Earliest, Latest, Process, Send
from dray.testing.history.evidence import ids
from dray.testing.history.heap_events import Pop
from dray.testing.history.limits import SECOND_NS, Limits
from dray.testing.history.timeline import FOREVER, History, Interval, Op, Status


def check_liveness(history: History, findings: Findings, limits: Limits) -> None:
    tries = _tries(history)
    for quiet in _quiet(history):
        if quiet.end - quiet.start <= limits.progress_ns:
            continue
        for process, ops in tries.items():
            _check_process(process, ops, quiet, findings, limits)


def _quiet(history: History) -> Iterator[Interval]:
    start = history.start_ns
    for fault in history.faults:
        yield Interval(start=start, end=fault.start)
        start = fault.end
    yield Interval(start=start, end=history.end_ns)


def _tries(history: History) -> dict[Process, list[tuple[int, int, Op]]]:
    """Per process: from when to when each operation was tried; not those that a deleted topic may keep."""
    ended: dict[Process, list[int]] = {}
    for noted in history.notes:
        if isinstance(noted.note, Crashed):
            ended.setdefault(noted.process, []).append(noted.t_ns)
    tries: dict[Process, list[tuple[int, int, Op]]] = {}
    for op in history.ops:
        if op.status is Status.FAIL or isinstance(op.call, Pop) or _may_be_in_vain(history, op):
            continue  # who waits for a message that nobody sends is not at fault; `stuck` is
        end_ns = min(op.answered_ns, history.end_ns)
        if op.answered_ns == FOREVER:
            end_ns = min((t for t in ended.get(op.process, []) if t >= op.start_ns), default=end_ns)
        tries.setdefault(op.process, []).append((op.start_ns, end_ns, op))
    return tries


def _may_be_in_vain(history: History, op: Op) -> bool:
    call: Call = op.call
    if op.status is Status.OK:
        return False
    if isinstance(call, CreateTopic | DeleteTopic):
        return False
    if not isinstance(call, Send | Latest | Earliest):
        return False
    life = history.life_of(call.tp, op.start_ns, op.answered_ns)
    return life is None or not life.survives


def _check_process(
    process: Process, ops: list[tuple[int, int, Op]], quiet: Interval, findings: Findings, limits: Limits
) -> None:
    successes = sorted(end for _, end, op in ops if op.status is Status.OK and quiet.start < end <= quiet.end)
    edges = [quiet.start, *successes, quiet.end]
    gaps = [(a, b) for a, b in pairwise(edges) if b - a > limits.progress_ns]
    for start, end in gaps:
        within = [(s, e, op) for s, e, op in ops if s < end and e > start]
        if not within:
            continue
        first = min(within, key=lambda attempt: attempt[0])
        since_ns = max(start, first[0])
        until_ns = min(end, max(e for _, e, _ in within))
        if until_ns - since_ns > limits.progress_ns:
            findings.add(
                Anomaly.NO_PROGRESS,
                process,
                f"{process} tried for {(until_ns - since_ns) / SECOND_NS:.1f} s without a success or a fault",
                ops=ids(first[2]),
                t_ns=since_ns,
                span_ns=until_ns - since_ns,
            )
