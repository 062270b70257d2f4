"""The verdict on a history, for people and for programs.

valid     nothing is wrong, and enough happened to say so
invalid   something is wrong
unknown   too little happened: fewer than half of the operations succeeded,
          or a partition took values and nobody read it
"""

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from dray.testing.history.anomalies import Anomaly, Witness
from dray.testing.history.checker import Judgement, share_ok
from dray.testing.history.events import Commit, Committed, Earliest, Latest, OpId, Poll, Polled, Seek, Send
from dray.testing.history.heap_events import Enqueue, Pop, Settle
from dray.testing.history.timeline import FOREVER, History, Op

WITNESSES: Final = 5
NEIGHBOURS: Final = 2
"""Operations on the same partition shown before and after each one of a witness."""
_MAX_LINE: Final = 300
_MEANINGFUL: Final = ("send", "poll", "enqueue", "pop")


class Verdict(Enum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        return {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWitness:
    where: str
    text: str
    ops: list[str]
    """The operations of the witness, marked with `>`, among their neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    verdict: str
    reasons: list[str]
    """Why the verdict is not `valid`."""
    seed: int | None
    version: str
    config: dict[str, str | int | float | bool]
    seconds: float
    ops: dict[str, dict[str, int]]
    share_ok: float
    records_read: int
    drained: bool
    cut: bool
    worst_lag_ms: float
    retried_duplicates: int
    info_causes: dict[str, int]
    faults: int
    anomalies: dict[str, int]
    witnesses: dict[str, list[ShownWitness]]


def judge(judgement: Judgement) -> tuple[Verdict, list[str]]:
    """The verdict and what it rests on."""
    counts = judgement.findings.counts
    if counts:
        return Verdict.INVALID, [f"{anomaly.value}: {counts[anomaly]}" for anomaly in Anomaly if counts[anomaly]]
    reasons = []
    share = share_ok(judgement.counts)
    if not any(counter["ok"] for kind, counter in judgement.counts.ops.items() if kind in _MEANINGFUL):
        reasons.append("nothing was sent and nothing was read")
    if share < judgement.limits.min_ok_share:
        reasons.append(f"only {share:.0%} of the operations succeeded")
    if judgement.counts.unread:
        reasons.append(f"nobody read from {', '.join(judgement.counts.unread[:8])}")
    return (Verdict.UNKNOWN if reasons else Verdict.VALID), reasons


def make_report(judgement: Judgement) -> Report:
    verdict, reasons = judge(judgement)
    history, findings, counts = judgement.history, judgement.findings, judgement.counts
    surroundings = _Surroundings(history) if findings.counts else None
    witnesses = {
        anomaly.value: [
            ShownWitness(where=w.where, text=w.text, ops=surroundings.show(w) if surroundings else [])
            for w in findings.smallest(anomaly, WITNESSES)
        ]
        for anomaly in Anomaly
        if findings.counts[anomaly]
    }
    return Report(
        verdict=verdict.value,
        reasons=reasons,
        seed=history.run.seed if history.run else None,
        version=history.run.version if history.run else "",
        config=history.run.config if history.run else {},
        seconds=round((history.end_ns - history.start_ns) / 1e9, 3),
        ops={kind: dict(counter) for kind, counter in sorted(counts.ops.items())},
        share_ok=round(share_ok(counts), 4),
        records_read=counts.records_read,
        drained=counts.drained,
        cut=history.cut,
        worst_lag_ms=round(counts.worst_lag_ns / 1e6, 3),
        retried_duplicates=findings.retried_duplicates,
        info_causes=dict(counts.info_causes.most_common(20)),
        faults=len(history.faults),
        anomalies={anomaly.value: findings.counts[anomaly] for anomaly in Anomaly if findings.counts[anomaly]},
        witnesses=witnesses,
    )


def as_json(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def as_text(report: Report) -> str:
    lines = [f"verdict: {report.verdict}", *(f"  {reason}" for reason in report.reasons)]
    lines.append(f"run: seed={report.seed} version={report.version or '-'} seconds={report.seconds}")
    if report.config:
        lines.append("config: " + " ".join(f"{name}={value}" for name, value in sorted(report.config.items())))
    for kind, counter in report.ops.items():
        lines.append(f"  {kind}: " + " ".join(f"{status}={n}" for status, n in sorted(counter.items())))
    lines.append(
        f"records read={report.records_read} drained={'yes' if report.drained else 'no'} "
        f"worst lag={report.worst_lag_ms} ms, fault periods={report.faults}, ok share={report.share_ok:.1%}"
    )
    if report.retried_duplicates:
        lines.append(f"second copies by retries without idempotence: {report.retried_duplicates}")
    if report.cut:
        lines.append("the last line of the file was incomplete and was left out")
    if report.info_causes:
        lines.append("unknown outcomes:")
        lines.extend(f"  {n} x {cause}" for cause, n in report.info_causes.items())
    for name, shown in report.witnesses.items():
        lines.append(f"{name}: {report.anomalies[name]}, the smallest:")
        for witness in shown:
            lines.append(f"  [{witness.where}] {witness.text}")
            lines.extend(f"    {line}" for line in witness.ops)
    return "\n".join(lines) + "\n"


class _Surroundings:
    """Finds the operations around the ones of a witness."""

    def __init__(self, history: History) -> None:
        self._ops = {op.id: op for op in history.ops}
        self._start_ns = history.start_ns
        self._by_partition: dict[str, list[Op]] = {}
        for op in history.ops:
            for tp in _touched(op):
                self._by_partition.setdefault(tp, []).append(op)

    def show(self, witness: Witness) -> list[str]:
        chosen: dict[OpId, bool] = {}
        neighbours = self._by_partition.get(witness.where.rpartition(" ")[2], [])
        for op_id in witness.ops:
            op = self._ops[op_id]
            index = bisect_left(neighbours, op.start_ns, key=lambda other: other.start_ns)
            for other in neighbours[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]:
                chosen.setdefault(other.id, False)
            chosen[op_id] = True
        ordered = sorted(chosen, key=lambda op_id: self._ops[op_id].start_ns)
        return [("> " if chosen[op_id] else "  ") + self._line(self._ops[op_id]) for op_id in ordered]

    def _line(self, op: Op) -> str:
        start = (op.start_ns - self._start_ns) / 1e9
        end = "never" if op.answered_ns == FOREVER else f"{(op.answered_ns - self._start_ns) / 1e9:.6f}"
        call = msgspec.json.encode(op.call).decode()
        answer = msgspec.json.encode(op.result).decode() if op.result is not None else op.error
        line = f"{start:.6f}..{end} {op.process} op={op.id} {op.status.value} {call} -> {answer}"
        return line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + "..."


def _touched(op: Op) -> list[str]:
    if isinstance(op.call, Send | Latest | Earliest | Commit | Committed | Seek):
        return [op.call.tp]
    if isinstance(op.call, Poll) and isinstance(op.result, Polled):
        return [tp for tp, records in op.result.records.items() if records]
    if isinstance(op.call, Enqueue | Pop | Settle):
        return [op.call.heap]
    return []
