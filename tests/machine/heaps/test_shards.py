"""Shards as nouns: opened, closed, dumped, shown; what is taken once and what is taken whole."""

import random

import pytest

from dray.machine import checkpoint, listing
from dray.machine.command import BadCommand, encode
from dray.machine.head import Activate
from dray.machine.heaps.answers import CLOSED, DUPLICATE, MALFORMED, TORN
from dray.machine.heaps.catalog import (
    AlterHeap,
    CreateHeap,
    DeleteHeap,
    HeapAltered,
    HeapDeleted,
    HeapGone,
    HeapReady,
    HeapState,
)
from dray.machine.heaps.commands import (
    Bury,
    CloseShard,
    Drop,
    MessageRef,
    OpenShard,
    Purge,
    Replay,
    ShardClosed,
    Tick,
    Ticked,
)
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.packets import (
    ATOMIC,
    IN_OBJECT,
    MAX_SEQ,
    Enqueue,
    EnqueueRow,
    Lease,
    Settle,
    Spill,
    pack_messages,
    pack_settlements,
    pack_spilled,
)
from dray.machine.machine import Machine
from dray.machine.names import StreamId, WalId
from dray.machine.sessions import KeepAlive
from dray.machine.topics import CreateTopic
from dray.machine.verdict import DONE, Refused, Why

from ..scribe import HOUR, Tape
from .jobs import HEAP, Jobs

KEY = (b"k" * 16,)
REF = MessageRef(slot=1, arrival=2)
SAMPLES = [
    CreateHeap(heap_id=HEAP, name="ü", mode=Mode.MAX, partitions=4_096, config=HeapConfig(k=9)),
    HeapReady(heap_id=HEAP, revision=0), AlterHeap(heap_id=HEAP, config=HeapConfig(), expected_revision=3),
    DeleteHeap(heap_id=HEAP), HeapGone(heap_id=HEAP),
    OpenShard(shard=StreamId(65_536), heap_id=HEAP, mode=Mode.MIN, partitions=2, revision=1),
    CloseShard(shard=StreamId(1), limit=5),
    Enqueue(shard=StreamId(1), packed=pack_messages([EnqueueRow(5, key=1, seq=2, length=3)] * 2), bodies=b"abcdef",
            keys=KEY, flags=ATOMIC, zone="zoné"),
    Lease(shard=StreamId(1), visibility_ms=5, limit=3, nonce=b"n" * 16, holder="ü", worst=-(1 << 63)),
    Settle(shard=StreamId(1), packed=pack_settlements([(1, 2, 3, b"n" * 16, -1)] * 3), notes={0: "é", 2: ""}),
    Tick(shard=StreamId(1)),
    Spill(shard=StreamId(1), packed=pack_spilled([(1, 2, 3, 4)]), wal_id=WalId(b"w" * 16), size=9, created_ms=1),
    Bury(shard=StreamId(1), messages=(REF,), force=True, note="n"),
    Replay(shard=StreamId(1), messages=(REF,), keep_time=True, priority=-(1 << 63)),
    Drop(shard=StreamId(1), messages=(REF,), expired=True), Purge(shard=StreamId(1), upto=5, include_leased=True),
]  # fmt: skip


def decode(number, payload):
    return Machine().decoders.decode(number, payload, 2)


def test_every_command_survives_the_codec_and_has_its_number():
    """M1, M11"""
    for number, command in enumerate(SAMPLES, 64):
        packed = encode(command, 2)
        assert packed[0] == number
        assert encode(decode(number, memoryview(packed[1])), 2) == packed


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: type(command).__name__)
def test_a_payload_that_is_cut_too_long_or_above_the_active_version_is_a_bad_command(command):
    """M1, M10"""
    number, payload = encode(command, 2)
    decoders = Machine().decoders
    for broken in (*(payload[:size] for size in range(len(payload))), payload + b"\0"):
        with pytest.raises(BadCommand):
            decoders.decode(number, broken, 2)
    with pytest.raises(BadCommand):
        decoders.decode(number, payload, 1)


def test_random_bytes_never_raise_anything_else():
    """M1, M3"""
    dice = random.Random(8)
    jobs = Jobs()
    jobs.enqueue(EnqueueRow(0), body=b"x")
    decoders = jobs.tape.machine.decoders
    for _ in range(3_000):
        command = dice.choice(SAMPLES)
        number, payload = encode(command, 2)
        damaged = bytearray(payload)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            decoded = decoders.decode(number, bytes(damaged), 2)
        except BadCommand:
            continue
        verdict = jobs.writer.do(decoded)
        assert not isinstance(verdict, Refused) or verdict.why is not Why.INTERNAL, verdict


def test_a_repeat_within_the_window_gets_the_id_of_the_first_however_long_that_is_gone():
    """D-113, DD1, DD2, D-111, D-112, D-116, D-118"""
    jobs = Jobs(dedup_window_ms=60_000)
    first = jobs.enqueue(EnqueueRow(0, key=1, seq=7), keys=KEY)[0]
    (message,) = jobs.lease()
    jobs.ack(message, jobs.nonce)
    jobs.after(59)
    jobs.tick()
    jobs.tape.machine = checkpoint.load(checkpoint.dump(jobs.tape.machine))
    again = jobs.enqueue(EnqueueRow(0, key=1, seq=7), keys=KEY)[0]
    assert again == (DUPLICATE, *first[1:])
    assert jobs.enqueue(EnqueueRow(0, key=1, seq=8), keys=KEY)[0].slot >= 0
    assert jobs.enqueue(EnqueueRow(0, key=1, seq=7), keys=(b"o" * 16,))[0].slot >= 0
    jobs.after(80)
    later = jobs.enqueue(EnqueueRow(0, key=1, seq=7), keys=KEY)[0]
    assert later.slot >= 0, "after the window it is a new message"
    assert later[1:] != first[1:]


def test_a_batch_is_taken_whole_or_not_at_all_and_the_bad_element_is_named():
    """L10, D-140, D-141"""
    jobs = Jobs(partitions=2)
    good, bad = EnqueueRow(0, key=1, seq=1), EnqueueRow(0, partition=2)
    given = jobs.enqueue(good, good._replace(seq=2), bad, flags=ATOMIC, keys=KEY)
    assert {one[:2] for one in given} == {(TORN, 2)}
    assert len(jobs.shard.messages.rows) == 0
    given = jobs.enqueue(good, good, good._replace(seq=2), flags=ATOMIC, keys=KEY)
    assert [one.slot for one in given] == [0, DUPLICATE, 1]


def test_rows_that_make_no_sense_are_refused_by_themselves():
    jobs = Jobs(max_payload_bytes=0)
    rows = [EnqueueRow(0, partition=1), EnqueueRow(0, key=1), EnqueueRow(0, wait=-1), EnqueueRow(0, retries=-2),
            EnqueueRow(0, seq=MAX_SEQ + 1), EnqueueRow(0, wait=(1 << 63) - 1)]  # fmt: skip
    assert [one.slot for one in jobs.enqueue(*rows)] == [MALFORMED] * len(rows)
    assert jobs.enqueue(EnqueueRow(0), body=bytes((64 << 10) + 1))[0].slot == MALFORMED


def test_an_object_lives_as_long_as_a_message_names_it():
    """L12, X1, D-164"""
    jobs = Jobs()
    name = jobs.new_object()
    rows = pack_messages([EnqueueRow(0, position=60 * i, length=50) for i in range(1, 4)])
    jobs.writer.do(Enqueue(shard=jobs.id, packed=rows, flags=IN_OBJECT, wal_id=name, size=400, created_ms=5))
    objects = jobs.tape.machine.objects
    assert [owner.rows for owner in objects.all()] == [3]
    granted = jobs.lease(3)
    assert {(message.place, message.body) for message in granted} == {(1, None)}
    for message in granted[:2]:
        jobs.ack(message, jobs.nonce)
    assert not objects.dead
    spilled = pack_spilled([(granted[2].slot, granted[2].arrival, 10, 50)])
    jobs.writer.do(Spill(shard=jobs.id, packed=spilled, wal_id=jobs.new_object(), size=99, created_ms=6))
    assert list(objects.dead) == [0]
    assert [owner.rows for owner in objects.all()] == [0, 1]
    jobs.ack(granted[2], jobs.nonce)
    assert list(objects.dead) == [0, 1]


def test_an_object_of_another_session_or_one_that_was_committed_is_refused():
    """X5"""
    jobs = Jobs()
    rows = pack_messages([EnqueueRow(0, position=9, length=5)])
    name = jobs.new_object()
    command = Enqueue(shard=jobs.id, packed=rows, flags=IN_OBJECT, wal_id=name, size=400, created_ms=5)
    refused = jobs.tape.open("b2").do(command)
    assert isinstance(refused, Refused)
    assert refused.why is Why.FOREIGN
    jobs.writer.do(command)
    refused = jobs.writer.do(command)
    assert isinstance(refused, Refused)
    assert refused.why is Why.EXISTS


def test_a_heap_goes_in_slices_and_its_shard_is_never_opened_again():
    """HS1, HP1, Q8, D-192"""
    jobs = Jobs(dedup_window_ms=60_000)
    for turn in range(40):
        jobs.enqueue(*(EnqueueRow(0, key=1, seq=3 * (50 * turn + i)) for i in range(50)), keys=KEY, body=b"b")
    held = jobs.lease(60)
    deleted = jobs.writer.do(DeleteHeap(heap_id=HEAP))
    assert deleted == HeapDeleted(shard=jobs.id)
    lefts = []
    while not lefts or lefts[-1]:
        verdict = jobs.writer.do(CloseShard(shard=jobs.id, limit=300))
        assert isinstance(verdict, ShardClosed)
        lefts.append(verdict.left)
        if verdict.left:
            assert jobs.ack(held[0], jobs.nonce) != 0
            assert jobs.lease() == []
            assert jobs.enqueue(EnqueueRow(0))[0].slot == CLOSED
            dumped = checkpoint.dump(jobs.tape.machine)
            jobs.tape.machine = checkpoint.load(dumped)
            assert checkpoint.dump(jobs.tape.machine) == dumped
    assert len(lefts) > 5
    assert jobs.tape.machine.heaps.inline.used == 0
    assert isinstance(jobs.tell(5), Refused)
    assert jobs.writer.do(HeapGone(heap_id=HEAP)) == DONE
    assert isinstance(jobs.writer.do(CreateHeap(heap_id=b"n" * 16, name="jobs", mode=Mode.MIN)), object)


def test_a_name_belongs_to_a_topic_or_to_a_heap():
    """HP1"""
    jobs = Jobs()
    refused = jobs.writer.do(CreateTopic(topic_id=b"t" * 16, name="jobs", partitions=1))
    assert isinstance(refused, Refused)
    assert refused.why is Why.EXISTS
    jobs.writer.do(CreateTopic(topic_id=b"t" * 16, name="orders", partitions=1))
    refused = jobs.writer.do(CreateHeap(heap_id=b"o" * 16, name="orders", mode=Mode.MIN))
    assert isinstance(refused, Refused)
    assert refused.why is Why.EXISTS


def test_a_heap_is_shown_when_its_shard_is_open_and_its_config_is_in_force_when_that_was_told():
    """HP2, D-020, D-193"""
    jobs = Jobs()
    catalog = jobs.tape.machine.heap_catalog
    heap = catalog.named("jobs")
    assert heap is not None
    assert (heap.state, list(catalog.unfinished())) == (HeapState.READY, [])
    config = HeapConfig(max_retries=1)
    altered = jobs.writer.do(AlterHeap(heap_id=HEAP, config=config, expected_revision=0))
    assert altered == HeapAltered(revision=1)
    assert isinstance(jobs.writer.do(AlterHeap(heap_id=HEAP, config=config, expected_revision=0)), Refused)
    assert list(catalog.unfinished()) == [heap]
    jobs.config = config
    jobs.tell(1)
    jobs.writer.do(HeapReady(heap_id=HEAP, revision=1))
    assert jobs.shard.messages.config.max_retries == 1
    assert list(catalog.unfinished()) == []
    jobs.config = HeapConfig()
    jobs.tell(0)
    assert jobs.shard.messages.config.max_retries == 1, "an older revision changes nothing"
    other = jobs.writer.do(CreateHeap(heap_id=b"o" * 16, name="other", mode=Mode.MAX))
    assert not isinstance(other, Refused)
    assert isinstance(jobs.writer.do(HeapReady(heap_id=b"o" * 16, revision=0)), Refused)
    assert [heap.name for heap in catalog.visible()] == ["jobs"]


def test_no_view_shows_a_body_a_nonce_or_a_header():
    """HB2"""
    jobs = Jobs()
    secret = b"\xfe\xedsecret-body"
    jobs.nonces = 0xFEED << 100
    jobs.enqueue(EnqueueRow(0), body=secret)
    (message,) = jobs.lease()
    token = jobs.nonce
    jobs.enqueue(EnqueueRow(1), body=secret)
    shown = str(list(listing.ls(jobs.tape.machine)))
    shown += str([listing.render(jobs.tape.machine, entry) for _, entry in jobs.tape.entries])
    for hidden in (secret, token):
        assert hidden.hex() not in shown
        assert str(hidden) not in shown
    assert "/dray/v1/heaps/jobs" in shown
    assert f"/dray/v1/shards/{jobs.id:020d}" in shown
    jobs.ack(message, token)


def test_a_shard_of_a_machine_is_in_its_checkpoint_and_a_tick_says_whether_more_is_due():
    """K2, M7: a tick takes what the entry leaves."""
    jobs = Jobs(backoff_base_ms=0)
    for _ in range(4):
        jobs.enqueue(*[EnqueueRow(0, wait=1, flags=4)] * 1_000)
    jobs.after(1)
    assert jobs.tick() == Ticked(done=2_999, more=True)
    assert jobs.tick() == Ticked(done=1_001, more=False)
    assert jobs.tick() == Ticked(done=0, more=False)


def test_running_time_begins_with_version_2_for_whoever_lives_then():
    """Q9, M10, M12: sessions of any age, and none of them claims what was before."""
    tape = Tape(version=1)
    old = tape.open("old", highest_version=2)
    old.live(20 * HOUR)
    young = tape.open("young", highest_version=2)
    machine = tape.machine
    assert machine.timeline.running_ms == 0
    old.do(Activate(version=2))
    for writer in (old, young):
        writer.pass_time(4_000)
        writer.send(KeepAlive())
    assert machine.timeline.running_ms == 4_000
    third = tape.open("third", highest_version=2, wall_ms=machine.time_ms + HOUR // 2, accept_clock=True)
    third.send(KeepAlive())
    assert machine.timeline.running_ms == 4_000
    third.pass_time(1_000)
    third.send(KeepAlive())
    assert machine.timeline.running_ms == 5_000
    assert checkpoint.load(checkpoint.dump(machine)).timeline.running_ms == 5_000


def test_a_lease_behind_thousands_that_were_buried_grants_what_a_loaded_machine_grants():
    """K2, L5, M7: what left by its name costs a later lease nothing, and a checkpoint knows nothing of it."""
    jobs = Jobs(max_inflight=10_000, max_leases_per_consumer=10_000)
    rows = [EnqueueRow(priority=5)] * 15_000 + [EnqueueRow(priority=0)] * 3_000
    for start in range(0, len(rows), 3_000):
        jobs.enqueue(*rows[start : start + 3_000])
    best = [
        MessageRef(slot=slot, arrival=row.arrival) for slot, row in jobs.shard.messages.rows.all() if not row.priority
    ]
    jobs.writer.do(Bury(shard=jobs.id, messages=tuple(reversed(best))))
    loaded = checkpoint.load(checkpoint.dump(jobs.tape.machine))
    assert len(jobs.lease(2_900)) == 2_900
    loaded.apply(*jobs.tape.entries[-1])
    assert checkpoint.dump(loaded) == checkpoint.dump(jobs.tape.machine)


def test_a_run_of_sequences_ends_where_an_older_generation_took_one():
    """DD1: what follows the newest range may have been taken before it."""
    jobs = Jobs(dedup_window_ms=60_000)
    (_, before) = jobs.enqueue(*(EnqueueRow(0, key=1, seq=seq) for seq in (0, 5)), keys=KEY)
    jobs.after(20)
    jobs.enqueue(EnqueueRow(0, key=1, seq=2), keys=KEY)
    given = jobs.enqueue(*(EnqueueRow(0, key=1, seq=seq) for seq in (3, 4, 5, 6)), keys=KEY)
    assert [one.slot >= 0 for one in given] == [True, True, False, True]
    assert given[2] == (DUPLICATE, *before[1:])
