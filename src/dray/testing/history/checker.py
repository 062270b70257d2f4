"""Judges a history: first collect, then compare, family by family.

Semantics after the Kafka workload of Jepsen, stricter where Dray promises
more: offsets are dense (there are no transactions), append and LATEST are
linearizable, stored group offsets are registers.

The checker is sound under what clients can know: an anomaly is reported only
if no order of events that fits the recorded intervals explains it. It is not
complete where a topic's lives overlap an operation (HC3).
"""

import gc
from collections import Counter
from dataclasses import dataclass, field

from dray.testing.history.anomalies import Findings
from dray.testing.history.consumers import Reading, gather_reads
from dray.testing.history.events import Partition, Poll, Send, Sent
from dray.testing.history.evidence import Evidence, gather_writes
from dray.testing.history.groups import check_groups
from dray.testing.history.heap_events import Pop
from dray.testing.history.heaps import check_heaps
from dray.testing.history.limits import Limits
from dray.testing.history.liveness import check_liveness
from dray.testing.history.order import check_order
from dray.testing.history.reads import check_reads
from dray.testing.history.timeline import History, Status
from dray.testing.history.writes import check_writes


@dataclass(slots=True, kw_only=True)
class Counts:
    """How much a history holds: what the verdict rests on."""

    ops: dict[str, Counter[str]] = field(default_factory=dict)
    """Per kind of operation: how many ok, fail, info."""
    info_causes: Counter[str] = field(default_factory=Counter)
    records_read: int = 0
    worst_lag_ns: int = 0
    unread: list[Partition] = field(default_factory=list)
    """Partitions that took a value and that nobody has read from."""
    drained: bool = False


@dataclass(slots=True, kw_only=True)
class Judgement:
    history: History
    findings: Findings
    counts: Counts
    limits: Limits


def check(history: History, limits: Limits | None = None) -> Judgement:
    """Find every anomaly of a history."""
    limits = limits or Limits()
    collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of small objects, no cycles: the collector would only walk them
    try:
        return _check(history, limits)
    finally:
        if collecting:
            gc.enable()


def _check(history: History, limits: Limits) -> Judgement:
    findings = Findings()
    evidence = gather_writes(history)
    reading = gather_reads(evidence, findings)
    for log in evidence.logs.values():
        log.seal()
    check_writes(evidence, findings, limits)
    check_order(evidence, findings)
    check_reads(evidence, reading, findings, limits)
    check_groups(history, findings)
    check_heaps(history, findings, limits)
    check_liveness(history, findings, limits)
    return Judgement(history=history, findings=findings, counts=_count(evidence, reading), limits=limits)


def _count(evidence: Evidence, reading: Reading) -> Counts:
    counts = Counts(records_read=reading.records, worst_lag_ns=reading.worst_lag_ns, drained=evidence.has_drain)
    for op in evidence.history.ops:
        kind = type(op.call).__name__.lower()
        counts.ops.setdefault(kind, Counter())[op.status.value] += 1
        if op.status is Status.INFO:
            counts.info_causes[f"{kind}: {op.error}"] += 1
    counts.unread = sorted(
        log.tp
        for log in evidence.logs.values()
        if log.life.survives
        and not log.first_read_ns
        and not log.damaged
        and any(isinstance(op.result, Sent) for op in log.sends)
    )
    return counts


def share_ok(counts: Counts) -> float:
    """The share of successes among what clients tried; polls and pops are left out, for they succeed with nothing too.

    Sends are looked at alone as well: the lower share counts.
    """
    shares = [1.0]
    waiting = {Poll.__name__.lower(), Pop.__name__.lower()}
    tried = [counter for kind, counter in counts.ops.items() if kind not in waiting]
    for group in (tried, [counts.ops.get(Send.__name__.lower(), Counter())]):
        total = sum(sum(counter.values()) for counter in group)
        if total:
            shares.append(sum(counter[Status.OK.value] for counter in group) / total)
    return min(shares)
