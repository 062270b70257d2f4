"""Histories of heaps: what is written down is what happened, and it becomes records once."""

from collections import Counter

import pytest

from dray.machine import checkpoint
from dray.machine.append import Append, Appended, pack_rows
from dray.machine.append_if import AppendIf, AppendTorn
from dray.machine.command import BadCommand
from dray.machine.foresight import foresee
from dray.machine.heaps import history as histories
from dray.machine.heaps import operators
from dray.machine.heaps.answers import HISTORY_FULL
from dray.machine.heaps.commands import CloseShard, Purge, ShardClosed
from dray.machine.heaps.config import HeapConfig
from dray.machine.heaps.history import EventKind, HistoryEvent, Tell
from dray.machine.heaps.messages import Messages
from dray.machine.heaps.packets import Enqueue, EnqueueRow, Settlement, pack_messages
from dray.machine.heaps.shard import Shard
from dray.machine.streams import CloseStream
from dray.machine.verdict import Refused, Why

from ..shop import Shop, row
from .jobs import Jobs
from .test_model import rewritten, use_one_side
from .twin import Twin

TOPIC = "jobs.history"
GONE = "gone"
FROM: dict[EventKind, tuple[str, ...]] = {
    EventKind.ENQUEUED: (GONE,), EventKind.LEASED: ("waiting",), EventKind.ACKED: ("leased",),
    EventKind.NACKED: ("leased",), EventKind.RELEASED: ("leased",), EventKind.REJECTED: ("leased",),
    EventKind.EXPIRED: ("leased",), EventKind.BURIED: ("waiting", "leased"), EventKind.DEAD: ("waiting", "doomed"),
    EventKind.DROPPED: ("waiting", "doomed"), EventKind.REPLAYED: ("dead",), EventKind.OUTDATED: ("waiting",),
    EventKind.FORGOTTEN: ("dead",), EventKind.DELETED: ("dead",), EventKind.PURGED: ("waiting", "leased", "dead"),
}  # fmt: skip
TO: dict[EventKind, str] = {
    EventKind.ENQUEUED: "waiting", EventKind.LEASED: "leased", EventKind.NACKED: "waiting",
    EventKind.RELEASED: "waiting", EventKind.EXPIRED: "waiting", EventKind.REJECTED: "doomed",
    EventKind.BURIED: "doomed", EventKind.DEAD: "dead", EventKind.REPLAYED: "waiting",
}  # fmt: skip


def after(events: list[HistoryEvent]) -> dict[tuple[int, int, int], tuple[str, int]]:
    """What there is when these events have happened: by id, the state and the failed deliveries."""
    known: dict[tuple[int, int, int], tuple[str, int]] = {}
    for event in events:
        kind, ident = EventKind(event.kind), (event.begun_ms, event.number, event.seq)
        state = known.get(ident, (GONE, 0))[0]
        assert state in FROM[kind], (kind.name, state)
        known[ident] = TO.get(kind, GONE), event.attempts
    return {ident: one for ident, one in known.items() if one[0] != GONE}


class Chronicler(Twin):
    """A twin whose heap has a history: whoever folds it knows what is there."""

    def configure(self) -> None:
        fields = {name: getattr(self.model.config, name) for name in HeapConfig.__struct_fields__}
        self.model.config = HeapConfig(**fields | {"history": TOPIC})
        super().configure()

    def check(self) -> None:
        super().check()
        events = list(self.machine.histories.all[self.id].events)
        states = {"ready": "waiting", "delayed": "waiting"}
        there = {
            tuple(self.shard.messages.rows.read(message.slot)[i] for i in (14, 7, 13)): (
                states.get(message.state, message.state), message.attempts,
            )
            for message in self.model.messages.values()
            if message.state != "prepared"
        }  # fmt: skip
        assert after(events) == there
        counts, totals = Counter(event.kind for event in events), self.shard.messages.totals
        assert counts[EventKind.ENQUEUED] == totals.enqueued
        assert counts[EventKind.LEASED] == totals.granted
        assert counts[EventKind.ACKED] == totals.acked
        assert counts[EventKind.EXPIRED] == totals.expired
        assert counts[EventKind.DEAD] + counts[EventKind.DROPPED] == totals.died
        assert counts[EventKind.REPLAYED] == totals.replayed
        positions = [event.position for event in events]
        assert positions == sorted(positions)


@pytest.mark.parametrize("seed", range(4))
def test_who_folds_a_history_knows_every_message_and_its_state(seed, monkeypatch):
    """HI1, K2: also over checkpoints"""
    print(f"seed={seed}")
    use_one_side(seed, monkeypatch)
    Chronicler(seed).run(200)


FORGOTTEN = {
    "deaths": (Messages, "die", "if self.history is not None:", "if False:"),
    "leases that ran out": (Shard, "wake", "EventKind.EXPIRED", "EventKind.RELEASED"),
    "batches": (Shard, "finish", "if history is not None:", "if False:"),
    "what was too old": (Shard, "_best_young", "messages.note_down(slot, EventKind.OUTDATED)", "pass"),
    "replays": (operators, "replay", "messages.note_down(slot, EventKind.REPLAYED, who=command.actor)", "pass"),
}


@pytest.mark.parametrize("mistake", FORGOTTEN)
def test_an_event_that_is_not_written_down_is_found(mistake, monkeypatch):
    """The test above would see it: each mistake fails some seed."""
    holder, name, old, new = FORGOTTEN[mistake]
    monkeypatch.setattr(holder, name, rewritten(holder, name, old, new))
    assert any(fails(seed) for seed in range(60)), "no seed has found it"


def fails(seed: int) -> bool:
    try:
        Chronicler(seed).run(150)
    except (AssertionError, KeyError):
        return True
    return False


class Told(Jobs):
    """A heap with a history, and the topic that it is told to."""

    def __init__(self, **config) -> None:
        self.shop = Shop(version=2)
        (self.stream,) = self.shop.topic(TOPIC, 1)
        super().__init__(tape=self.shop.tape, history=TOPIC, **config)

    @property
    def history(self):
        return self.tape.machine.histories.all[self.id]

    @property
    def end(self) -> int:
        return self.tape.machine.streams.find(self.stream).end

    def telling(self, count: int, *, first: int | None = None, records: int | None = None) -> Tell:
        append = Append(
            wal_id=self.new_object(), size=1 << 20, created_ms=1, zone="a",
            packed=pack_rows([row(self.stream, records or count)]),
        )  # fmt: skip
        return Tell(
            shard=self.id, first=self.history.first if first is None else first, count=count,
            append=AppendIf(append=append),
        )  # fmt: skip

    def reload(self) -> None:
        dumped = checkpoint.dump(self.tape.machine)
        self.tape.machine = checkpoint.load(dumped)
        assert checkpoint.dump(self.tape.machine) == dumped


def kinds(jobs: Told) -> list[str]:
    return [EventKind(event.kind).name.lower() for event in jobs.history.events]


def test_events_say_who_did_what_and_for_how_long():
    """HI1"""
    jobs = Told(max_retries=1, backoff_base_ms=0)
    jobs.enqueue(EnqueueRow(5), EnqueueRow(1), by=("anna", ""))
    first, second = jobs.lease(2, holder="w1", seconds=9)
    nonce = jobs.nonce
    jobs.settle(Settlement.NACK, first, nonce, 0, "boom")
    jobs.settle(Settlement.REJECT, second, nonce, 0, "never")
    jobs.after(20)
    (again,) = jobs.lease(1, holder="w2")
    jobs.ack(again, jobs.nonce)
    found = [(EventKind(e.kind).name, e.who, e.priority, e.attempts, e.span_ms, e.note) for e in jobs.history.events]
    assert found == [
        ("ENQUEUED", "anna", 5, 0, 0, ""), ("ENQUEUED", "", 1, 0, 0, ""), ("LEASED", "w1", 1, 0, 9_000, ""),
        ("LEASED", "w1", 5, 0, 9_000, ""), ("NACKED", "w1", 1, 1, 0, "boom"), ("REJECTED", "w1", 5, 1, 0, "never"),
        ("DEAD", "", 5, 1, 0, ""), ("LEASED", "w2", 1, 1, 30_000, ""), ("ACKED", "w2", 1, 1, 0, ""),
    ]  # fmt: skip


def test_an_event_becomes_one_record_whoever_tells_it_and_how_often():
    """HI1: brokers that are late, die between two steps, or tell more than there is change nothing."""
    jobs = Told()
    jobs.enqueue(*[EnqueueRow(n) for n in range(5)])
    late = jobs.telling(5)
    for wrong in (jobs.telling(6), jobs.telling(2, first=1), jobs.telling(3, records=4)):
        assert isinstance(jobs.writer.do(wrong), Refused)
    assert jobs.end == 0
    verdict = jobs.writer.do(jobs.telling(3))
    assert isinstance(verdict, Appended)
    assert verdict.given == [0]
    jobs.reload()  # who told it is gone, and another one goes on from a checkpoint
    assert (jobs.history.first, len(jobs.history.events), jobs.end) == (3, 2, 3)
    refusal = jobs.writer.do(late)
    assert isinstance(refusal, Refused)
    assert refusal.why is Why.STALE
    assert jobs.writer.do(jobs.telling(2)).given == [3]
    assert (jobs.history.first, len(jobs.history.events), jobs.end) == (5, 0, 5)


def test_a_topic_that_is_gone_loses_no_event():
    """HI1"""
    jobs = Told()
    jobs.enqueue(EnqueueRow(1))
    jobs.writer.do(CloseStream(stream=jobs.stream))
    assert isinstance(jobs.writer.do(jobs.telling(1)), AppendTorn)
    assert kinds(jobs) == ["enqueued"]


def test_the_history_of_a_deleted_heap_is_told_to_its_end():
    """HI1, HS1"""
    jobs = Told()
    jobs.enqueue(EnqueueRow(1))
    assert jobs.writer.do(CloseShard(shard=jobs.id)) == ShardClosed(left=0)
    jobs.reload()
    assert jobs.id not in jobs.tape.machine.heaps.all
    assert kinds(jobs) == ["enqueued", "heap_deleted"]
    jobs.writer.do(jobs.telling(2))
    assert not jobs.tape.machine.histories.all
    assert jobs.end == 2


def test_a_heap_without_a_history_writes_nothing_down_and_what_was_written_is_still_told():
    """HI3"""
    jobs = Told()
    jobs.enqueue(EnqueueRow(1))
    jobs.config = HeapConfig()
    jobs.tell(1)
    jobs.enqueue(EnqueueRow(2))
    jobs.lease(2)
    jobs.reload()
    assert kinds(jobs) == ["enqueued"]
    assert jobs.writer.do(jobs.telling(1)).given == [0]
    jobs.lease(1)
    jobs.config = HeapConfig(history=TOPIC)
    jobs.tell(2)
    jobs.enqueue(EnqueueRow(3))
    assert (kinds(jobs), jobs.history.first) == (["enqueued"], 1), "numbers go on"


def test_what_is_not_told_is_bounded_and_settlements_go_on(monkeypatch):
    """HI2"""
    jobs = Told()
    monkeypatch.setattr(histories, "MAX_UNTOLD", 4)
    given = jobs.enqueue(*[EnqueueRow(n) for n in range(3)])
    (held,) = jobs.lease(2)
    assert jobs.enqueue(EnqueueRow(9))[0].slot == HISTORY_FULL
    assert jobs.lease(1) == []
    refusal = jobs.writer.do(Purge(shard=jobs.id, upto=100))
    assert isinstance(refusal, Refused)
    assert refusal.why is Why.LIMIT
    assert jobs.ack(held, (1).to_bytes(16, "big")) == 0
    assert len(kinds(jobs)) == 5
    jobs.writer.do(jobs.telling(5))
    assert jobs.enqueue(EnqueueRow(9))[0].slot >= 0
    assert len(given) == 3


def test_what_a_tell_is_given_is_foreseen():
    """M20"""
    jobs = Told()
    jobs.enqueue(EnqueueRow(1), EnqueueRow(2))
    packed = pack_messages([EnqueueRow(3)])
    more = Enqueue(shard=jobs.id, packed=packed)
    for commands in (
        (jobs.telling(1),), (jobs.telling(1), jobs.telling(1)), (more, jobs.telling(2)), (jobs.telling(9),),
    ):  # fmt: skip
        entry = jobs.writer.entry(*commands)
        foreseen = [one.base for one in foresee(jobs.tape.machine, entry)]
        jobs.writer.n += 1
        applied = jobs.tape.write(entry)
        got = [base for verdict in applied.verdicts if isinstance(verdict, Appended) for base in verdict.given]
        assert foreseen == got


@pytest.mark.parametrize("by", [("anna", "", "anna"), ("", "", "ü"), ()])
def test_names_of_those_who_enqueue_travel_with_the_rows(by):
    """M1"""
    command = Enqueue(shard=7, packed=pack_messages([EnqueueRow(n) for n in range(3)]), bodies=b"abc", by=by)
    payload = command.payload(2)
    assert Enqueue.reader(2)(payload) == command
    for cut in range(len(payload)):
        with pytest.raises(BadCommand):
            Enqueue.reader(2)(payload[:cut])
    with pytest.raises(BadCommand):
        Enqueue.reader(2)(payload + b"x")


def test_a_tell_that_makes_no_sense_is_refused():
    """M2, M3"""
    jobs = Told()
    jobs.enqueue(EnqueueRow(1))
    tell = jobs.telling(1)
    payload = tell.payload(2)
    assert Tell.reader(2)(payload) == tell
    for broken in (payload[:5], payload[:16] + b"\0\0" + payload[18:], payload[:-1]):
        with pytest.raises(BadCommand):
            Tell.reader(2)(broken)
