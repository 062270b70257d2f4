"""What can be wrong with a history, and the evidence for it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dray.testing.history.events import OpId, Partition

KEPT_WITNESSES: Final = 1_000
"""Per kind. A broken log yields one per record; beyond this they are only counted."""


class Anomaly(Enum):
    INCONSISTENT_OFFSET = "inconsistent-offset"
    DUPLICATE = "duplicate"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    ABORTED_READ = "aborted-read"
    PHANTOM = "phantom"
    MISROUTED = "misrouted"
    CORRUPT_PAYLOAD = "corrupt-payload"
    ACK_WITHOUT_OFFSET = "ack-without-offset"
    OFFSET_HOLE = "offset-hole"
    REALTIME_ORDER = "realtime-order"
    STALE_TAIL = "stale-tail"
    STALE_READ = "stale-read"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    EARLIEST_REGRESS = "earliest-regress"
    LOST_COMMIT = "lost-commit"
    COMMIT_REGRESS = "commit-regress"
    ZOMBIE_COMMIT_ACCEPTED = "zombie-commit-accepted"
    TWO_OWNERS = "two-owners"
    RESURRECTED_TOPIC = "resurrected-topic"
    NO_PROGRESS = "no-progress"
    LOST_ENQUEUE = "lost-enqueue"
    PHANTOM_POP = "phantom-pop"
    WRONG_BODY = "wrong-body"
    DEDUP_TWO_IDS = "dedup-two-ids"
    DEDUP_FALSE_HIT = "dedup-false-hit"
    CREDIT_OVERRUN = "credit-overrun"
    DOUBLE_LEASE = "double-lease"
    DELIVERED_AFTER_ACK = "delivered-after-ack"
    STALE_TOKEN_ACCEPTED = "stale-token-accepted"
    ACK_AFTER_DEADLINE = "ack-after-deadline"
    EARLY_EXPIRY = "early-expiry"
    EARLY_DELIVERY = "early-delivery"
    ATTEMPT_JUMP = "attempt-jump"
    OVER_RETRY = "over-retry"
    IN_DLQ_AND_IN_HEAP = "in-dlq-and-in-heap"
    RANK = "rank"
    STUCK = "stuck"
    TORN_BATCH = "torn-batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One instance of an anomaly: what was seen, and the operations that show it."""

    anomaly: Anomaly
    where: str
    """A partition, a group, a process or a heap."""
    text: str
    ops: tuple[OpId, ...]
    t_ns: int
    span_ns: int = 0


@dataclass(slots=True)
class Findings:
    """Collects witnesses; counts all, keeps enough."""

    counts: Counter[Anomaly] = field(default_factory=Counter)
    witnesses: dict[Anomaly, list[Witness]] = field(default_factory=dict)
    retried_duplicates: int = 0
    """Second copies that a producer without idempotence may make when it retries: counted, no fault."""

    def add(
        self,
        anomaly: Anomaly,
        where: Partition | str,
        text: str,
        *,
        ops: Iterable[OpId] = (),
        t_ns: int = 0,
        span_ns: int = 0,
    ) -> None:
        self.counts[anomaly] += 1
        kept = self.witnesses.setdefault(anomaly, [])
        if len(kept) < KEPT_WITNESSES:
            ids = tuple(dict.fromkeys(ops))
            kept.append(Witness(anomaly=anomaly, where=where, text=text, ops=ids, t_ns=t_ns, span_ns=span_ns))

    def smallest(self, anomaly: Anomaly, count: int) -> list[Witness]:
        """The witnesses with the fewest operations over the shortest time: the easiest to understand."""
        return sorted(self.witnesses.get(anomaly, []), key=lambda w: (len(w.ops), w.span_ns, w.t_ns))[:count]
