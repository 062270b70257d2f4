"""Every anomaly of heaps has a history that shows it, and a near miss that does not. Times are in seconds."""

import pytest

from dray.testing.history import Anomaly, Limits, Verdict, check, decode_events, encode_events, fold_history, judge
from dray.testing.history.events import Nemesis
from dray.testing.history.heap_events import (
    LEASE_LOST,
    Dead,
    Enqueue,
    Enqueued,
    HeapDrained,
    HeapOpened,
    Held,
    ListDead,
    Pop,
    Popped,
    Replay,
    Settle,
    Settled,
)
from tests.history.stories import SECOND, Story, crc_of
from tests.history.test_anomalies import FAULTY as FAULTY_LOGS

LEASE_S = 10


class HeapStory(Story):
    """A heap `h` whose leases are of ten seconds and whose messages have two retries."""

    def __init__(self, **promises):
        super().__init__()
        self.note(HeapOpened(heap="h", retries=2, **promises), at=0)

    def at(self, process, call, result, start, end, **how):
        return self.op(process, call, result, at=(int(start * SECOND), int(end * SECOND)), **how)

    def enqueue(self, key, start, end, *, identity=None, delay_ms=0, priority=0, heap="h", batch="", **how):
        call = Enqueue(heap=heap, key=key, crc=crc_of(key), priority=priority, delay_ms=delay_ms, batch=batch)
        return self.at("p", call, Enqueued(id=identity or f"id-{key}"), start, end, **how)

    def pop(self, start, end, *jobs, p="c", credits=1, **how):
        call = Pop(heap="h", credits=credits, lease_ms=LEASE_S * 1_000)
        return self.at(p, call, Popped(jobs=list(jobs)), start, end, **how)

    def settle(self, token, kind, start, end, *, wait_ms=0, dead=False, **how):
        return self.at(
            "c", Settle(heap="h", token=token, kind=kind, wait_ms=wait_ms), Settled(dead=dead), start, end, **how
        )

    def dead(self, start, end, *ids):
        return self.at("q", ListDead(heap="h"), Dead(ids=list(ids)), start, end)

    def replay(self, start, end, *ids):
        return self.at("q", Replay(heap="h", ids=list(ids)), None, start, end)

    def drained(self, at, heap="h"):
        return self.note(HeapDrained(heap=heap), at=int(at * SECOND))

    def batch(self):
        """Of heaps `h` and `g`; nobody was told what became of it, and one of its messages was done."""
        self.note(HeapOpened(heap="g", retries=2), at=0)
        self.enqueue("a", 0, 1, batch="x", status="info").enqueue("b", 0, 1, heap="g", batch="x", status="info")
        return self.pop(1, 2, job("a")).settle("t1", "ack", 3, 4)

    def trouble(self, start, end, fault="kill -9"):
        self.note(Nemesis(fault=fault, target="b", start=True), at=int(start * SECOND))
        return self.note(Nemesis(fault=fault, target="b", start=False), at=int(end * SECOND))


def job(key, token="t1", *, attempts=0, priority=0, identity=None, crc=None):
    return Held(identity or f"id-{key}", key, crc_of(key) if crc is None else crc, token, attempts, priority)


def one(**promises):
    """A message, and who took it at once."""
    return HeapStory(**promises).enqueue("a", 0, 1).pop(1, 2, job("a"))


FAULTY = {
    "a message of an empty heap was never acked": (
        lambda: HeapStory().enqueue("a", 0, 1).drained(30),
        {"lost-enqueue"},
    ),
    "a dead letter is not among the dead letters": (
        lambda: one().settle("t1", "reject", 3, 4).dead(5, 6).drained(7),
        {"lost-enqueue"},
    ),
    "a message that nobody sent": (lambda: HeapStory().pop(1, 2, job("ghost")), {"phantom-pop"}),
    "a message that was surely refused": (
        lambda: HeapStory().enqueue("a", 0, 1, status="fail").pop(1, 2, job("a")),
        {"phantom-pop"},
    ),
    "a message with another body": (lambda: HeapStory().enqueue("a", 0, 1).pop(1, 2, job("a", crc=7)), {"wrong-body"}),
    "one key with two ids": (
        lambda: HeapStory().enqueue("a", 0, 1).enqueue("a", 2, 3, identity="id-other"),
        {"dedup-two-ids"},
    ),
    "two keys with one id": (
        lambda: HeapStory().enqueue("a", 0, 1).enqueue("b", 2, 3, identity="id-a"),
        {"dedup-false-hit"},
    ),
    "more than was asked for": (
        lambda: HeapStory().enqueue("a", 0, 1).enqueue("b", 0, 1).pop(1, 2, job("a"), job("b", "t2")),
        {"credit-overrun"},
    ),
    "two consumers hold one message": (
        lambda: one().pop(3, 11, job("a", "t2"), p="d"),
        {"double-lease"},
    ),
    "a renewed lease is given to another": (
        lambda: one().settle("t1", "renew", 9, 10, wait_ms=10_000).pop(15, 18, job("a", "t2", attempts=1), p="d"),
        {"double-lease"},
    ),
    "one token comes twice": (
        lambda: HeapStory().enqueue("a", 0, 1).pop(1, 5, job("a")).pop(2, 6, job("a"), p="d"),
        {"double-lease"},
    ),
    "a message comes after its ack": (
        lambda: one().settle("t1", "ack", 3, 4).pop(5, 6, job("a", "t2"), p="d"),
        {"delivered-after-ack"},
    ),
    "an old token acks": (
        lambda: one().pop(12, 13, job("a", "t2", attempts=1), p="d").settle("t1", "ack", 14, 15),
        {"stale-token-accepted"},
    ),
    "an ack long after the lease": (lambda: one().settle("t1", "ack", 18, 19), {"ack-after-deadline"}),
    "an ack long after the lease, and a clock was moved": (
        lambda: one().trouble(2.5, 17, "clock +10 min").settle("t1", "ack", 18, 19),
        {"ack-after-deadline"},
    ),
    "a consumer waited, and a clock was moved": (
        lambda: HeapStory().enqueue("a", 0, 1).trouble(1.5, 29, "clock +10 min").pop(1, 30, job("a")),
        {"stuck"},
    ),
    "an ack long after the lease was renewed": (
        lambda: one().settle("t1", "renew", 9, 10, wait_ms=10_000).settle("t1", "ack", 26, 27),
        {"ack-after-deadline"},
    ),
    "a lease ends before its time": (
        lambda: one().settle("t1", "ack", 5, 6, status="fail", error=LEASE_LOST),
        {"early-expiry"},
    ),
    "a delayed message comes at once": (
        lambda: HeapStory().enqueue("a", 0, 1, delay_ms=5_000).pop(1, 4, job("a")),
        {"early-delivery"},
    ),
    "a failed message comes back at once": (
        lambda: one().settle("t1", "nack", 3, 4, wait_ms=9_000).pop(5, 6, job("a", "t2", attempts=1)),
        {"early-delivery"},
    ),
    "a failure was not counted": (
        lambda: one().settle("t1", "nack", 3, 4).pop(5, 6, job("a", "t2", attempts=0)),
        {"attempt-jump"},
    ),
    "a failure that nobody can have caused": (
        lambda: HeapStory().enqueue("a", 0, 1).pop(1, 2, job("a", attempts=1)),
        {"attempt-jump"},
    ),
    "more attempts than retries": (
        lambda: (
            HeapStory().enqueue("a", 0, 1)
            .pop(1, 2, status="info").pop(1, 2, status="info").pop(1, 2, status="info")
            .pop(50, 51, job("a", attempts=3))
        ),
        {"over-retry"},
    ),
    "a rejected message comes again": (
        lambda: one().settle("t1", "reject", 3, 4).pop(5, 6, job("a", "t2")),
        {"in-dlq-and-in-heap"},
    ),
    "a message that died of its failures comes again": (
        lambda: one().settle("t1", "nack", 3, 4, dead=True).pop(5, 6, job("a", "t2", attempts=1)),
        {"in-dlq-and-in-heap"},
    ),
    "a message that is held is listed as dead": (lambda: one().dead(3, 4, "id-a"), {"in-dlq-and-in-heap"}),
    "a message that was acked is listed as dead": (
        lambda: one().settle("t1", "ack", 3, 4).dead(5, 6, "id-a"),
        {"in-dlq-and-in-heap"},
    ),
    "a message that was listed as dead comes again": (
        lambda: one().settle("t1", "nack", 3, 4, status="info").dead(5, 6, "id-a").pop(7, 8, job("a", "t2")),
        {"in-dlq-and-in-heap"},
    ),
    "a worse message comes first": (
        lambda: (
            HeapStory().enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2)
            .pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1))
        ),
        {"rank"},
    ),
    "a worse message comes first where the greatest is best": (
        lambda: (
            HeapStory(least_first=False).enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2)
            .pop(2, 3, job("a", priority=1)).pop(4, 5, job("b", "t2", priority=2))
        ),
        {"rank"},
    ),
    "a worse message first, after a pop that found nothing and nothing was wrong": (
        lambda: HeapStory().enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2)
        .pop(1.5, 1.6).pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1)),
        {"rank"},
    ),
    "a worse message comes first beside a pop without answer, where nobody gives back": (
        lambda: (
            HeapStory(gives_back=False).enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2)
            .pop(1.5, 1.6, status="info").pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1))
        ),
        {"rank"},
    ),
    "a message of a batch came, and another heap never had its part": (
        lambda: HeapStory().batch().drained(40).drained(40, "g"),
        {"torn-batch"},
    ),
    "a message of a batch came, and another of the same heap did not": (
        lambda: (
            HeapStory().enqueue("a", 0, 1, batch="x", status="info").enqueue("b", 0, 1, batch="x", status="info")
            .pop(1, 2, job("a")).settle("t1", "ack", 3, 4).dead(50, 51).drained(52)
        ),
        {"torn-batch"},
    ),
    "a message lies there and a consumer waits": (
        lambda: HeapStory().enqueue("a", 0, 1).pop(1, 8, job("a")),
        {"stuck"},
    ),
    "a message lies there and a consumer asks again and again": (
        lambda: HeapStory().enqueue("a", 0, 1).pop(1, 3).pop(3.5, 5.5).pop(6, 8).pop(8, 9, job("a")),
        {"stuck"},
    ),
}  # fmt: skip

SOUND = {
    "a part of a batch may still come": lambda: HeapStory().batch().drained(40).drained(20, "g"),
    "a heap of a batch was never found empty": lambda: HeapStory().batch().drained(40),
    "nothing of a batch came": lambda: (
        HeapStory().enqueue("a", 0, 1, batch="x", status="info").enqueue("b", 0, 1, batch="x", status="info")
        .drained(60)
    ),
    "messages of two batches, of which one was taken": lambda: (
        HeapStory().enqueue("a", 0, 1, batch="x", status="info").enqueue("b", 0, 1, batch="y", status="info")
        .pop(1, 2, job("a")).settle("t1", "ack", 3, 4).drained(60)
    ),
    "a part of a batch may be the dead letter that nobody knows": lambda: (
        HeapStory().enqueue("a", 0, 1, batch="x", status="info").enqueue("b", 0, 1, batch="x", status="info")
        .pop(1, 2, job("a")).settle("t1", "ack", 3, 4).dead(50, 51, "id-of-b").drained(52)
    ),
    "all is well": lambda: one().settle("t1", "ack", 3, 4).drained(5),
    "an ack without answer may have been taken": lambda: one().settle("t1", "ack", 3, 4, status="info").drained(30),
    "what is dead is not lost": lambda: one().settle("t1", "reject", 3, 4).dead(5, 6, "id-a").drained(7),
    "what was never answered need not be there": lambda: HeapStory().enqueue("a", 0, 1, status="info").drained(30),
    "an unanswered message may come": lambda: HeapStory().enqueue("a", 0, 1, status="info").pop(2, 3, job("a")),
    "a repeat has the same id": lambda: HeapStory().enqueue("a", 0, 1).enqueue("a", 2, 3),
    "one consumer after the other": lambda: one().pop(3, 13, job("a", "t2", attempts=1), p="d"),
    "given back, and given to another": lambda: (
        one().settle("t1", "release", 3, 4).pop(3.5, 5, job("a", "t2"), p="d")
    ),
    "a pop that was on its way before the ack": lambda: (
        one().pop(2.5, 12.5, job("a", "t2", attempts=1), p="d").settle("t1", "ack", 3, 4)
    ),
    "an ack that was on its way before the next lease": lambda: (
        one().settle("t1", "ack", 3, 14).pop(12, 13, job("a", "t2", attempts=1), p="d")
    ),
    "a settlement that repeats itself": lambda: (
        one().settle("t1", "nack", 3, 4, status="info").pop(5, 6, job("a", "t2", attempts=1)).settle("t1", "nack", 7, 8)
    ),
    "an ack a little after the lease": lambda: one().settle("t1", "ack", 14, 15),
    "an ack long after the lease, and brokers were gone": lambda: (
        one().trouble(5, 17).settle("t1", "ack", 20, 21)
    ),
    "an ack within a renewed lease": lambda: (
        one().settle("t1", "renew", 9, 10, wait_ms=10_000).settle("t1", "ack", 18, 19)
    ),
    "an ack that is refused after its time": lambda: (
        one().settle("t1", "ack", 10.5, 11.5, status="fail", error=LEASE_LOST)
    ),
    "an ack that is refused for another reason": lambda: (
        one().settle("t1", "ack", 3, 4, status="fail", error="unavailable")
    ),
    "a delayed message in time": lambda: HeapStory().enqueue("a", 0, 1, delay_ms=5_000).pop(1, 6, job("a")),
    "a delayed message, and a clock was moved": lambda: (
        HeapStory().enqueue("a", 0, 1, delay_ms=5_000).trouble(1.5, 3.5, "clock +10 min").pop(1, 4, job("a"))
    ),
    "a failed message in time": lambda: (
        one().settle("t1", "nack", 3, 4, wait_ms=2_000).pop(4.5, 6, job("a", "t2", attempts=1))
    ),
    "a stream that broke may have held it": lambda: (
        HeapStory(resumes=True).enqueue("a", 0, 1).pop(1, 2, job("a", attempts=1))
    ),
    "a stream that broke may have held the better one": lambda: (
        HeapStory(resumes=True).enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2)
        .pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1))
    ),
    "a lease that ran out counts": lambda: (
        HeapStory().enqueue("a", 0, 1).pop(1, 2, status="info").pop(20, 21, job("a", attempts=1))
    ),
    "a lease ran out of a message that a pop could not read and could not give back": lambda: (
        HeapStory().enqueue("a", 0, 1).trouble(1.2, 15).pop(1.5, 2).pop(20, 21, job("a", attempts=1))
    ),
    "a dead letter that was replayed": lambda: (
        one().settle("t1", "reject", 3, 4).dead(5, 6, "id-a").replay(7, 8, "id-a").pop(9, 10, job("a", "t2"))
    ),
    "a message that died of its failures while it was listed": lambda: (
        one().settle("t1", "nack", 3, 6, dead=True).dead(4, 5, "id-a")
    ),
    "a pop that was on its way before the message died": lambda: (
        one().pop(2.5, 12.5, job("a", "t2", attempts=1)).settle("t1", "reject", 3, 4, status="info").dead(13, 14)
    ),
    "a better message that came in the meantime": lambda: (
        HeapStory().enqueue("b", 0, 1, priority=2).enqueue("a", 1, 2.5, priority=1)
        .pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1))
    ),
    "a better message that another pop may have taken first": lambda: (
        HeapStory().enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2)
        .pop(2, 3, job("b", priority=2)).pop(2.5, 5, job("a", "t2", priority=1))
    ),
    "a better message that a pop without answer may have held": lambda: (
        HeapStory().enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2)
        .pop(1.5, 1.6, status="info").pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1))
    ),
    "a better message that a pop may have let go whose store was away": lambda: (
        HeapStory().enqueue("a", 0, 1, priority=1).enqueue("b", 0, 1, priority=2).trouble(1.2, 1.7)
        .pop(1.5, 1.6).pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1))
    ),
    "a better message that is delayed": lambda: (
        HeapStory().enqueue("a", 0, 1, priority=1, delay_ms=1_000).enqueue("b", 0, 1, priority=2)
        .pop(2, 3, job("b", priority=2)).pop(4, 5, job("a", "t2", priority=1))
    ),
    "nobody waited": lambda: HeapStory().enqueue("a", 0, 1).pop(20, 21, job("a")),
    "a consumer waited for nothing": lambda: HeapStory().pop(1, 50).enqueue("a", 50, 51).pop(51, 52, job("a")),
    "a consumer waited while brokers were gone": lambda: (
        HeapStory().enqueue("a", 0, 1).trouble(3, 7).pop(1, 10, job("a"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_history_shows_its_anomaly_and_no_other(name):
    """T15."""
    story, expected = FAULTY[name]
    assert story().anomalies() == expected


@pytest.mark.parametrize("name", SOUND)
def test_a_near_miss_is_no_anomaly(name):
    """HC5, HC6."""
    assert SOUND[name]().anomalies() == set()


def test_every_anomaly_has_a_history_that_shows_it():
    shown = {anomaly for faulty in (FAULTY, FAULTY_LOGS) for _, expected in faulty.values() for anomaly in expected}
    assert shown == {anomaly.value for anomaly in Anomaly}


def test_a_history_of_a_heap_is_written_and_read_back_and_has_a_verdict():
    events = one().settle("t1", "ack", 3, 4).drained(5).events()
    read, cut = decode_events(encode_events(events))
    assert (read, cut) == (events, False)
    assert judge(check(fold_history(read), Limits())) == (Verdict.VALID, [])
