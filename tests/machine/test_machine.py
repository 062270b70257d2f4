"""The machine as a whole: total, deterministic, versioned."""

import random

import pytest

from dray.errors import Invalid
from dray.log import envelope
from dray.machine import checkpoint
from dray.machine.append import Appended
from dray.machine.command import MAX_ROWS, encode
from dray.machine.head import SUPPORTED, Activate, Genesis
from dray.machine.machine import Machine
from dray.machine.offsets import CommitOffsets
from dray.machine.producer_ids import AllocateProducerId
from dray.machine.sessions import KeepAlive, Open, Opened, SessionKind
from dray.machine.step import EndReason, Outcome
from dray.machine.streams import CloseStream, FloorRaised, FloorReason, RaiseFloor, StreamClosed
from dray.machine.verdict import Done, Refused, Why

from .scribe import CLUSTER, LOG, NOW, Tape, entry
from .shop import Shop, row
from .world import World


def why(verdict) -> Why:
    assert isinstance(verdict, Refused), verdict
    return verdict.why


def test_genesis_comes_first_and_once():
    """M6"""
    machine = Machine()
    opening = Open(
        name="b", nonce=b"n" * 16, seen=0, instance=b"i" * 16, kind=SessionKind.BROKER,
        lowest_version=1, highest_version=1, wall_ms=NOW,
    )  # fmt: skip
    genesis = Genesis(cluster_id=CLUSTER, log_id=LOG, domain=2, domains=4)
    assert why(machine.apply(1, entry(opening)).verdicts[0]) is Why.STATE
    assert machine.apply(2, entry(KeepAlive(), session=1, n=1)).outcome is Outcome.DEAD
    assert machine.apply(3, entry(genesis)).verdicts == [Done()]
    assert (machine.head.cluster_id, machine.log_id, machine.domain, machine.head.domains) == (CLUSTER, LOG, 2, 4)
    assert why(machine.apply(4, entry(genesis)).verdicts[0]) is Why.EXISTS
    assert isinstance(machine.apply(5, entry(opening)).verdicts[0], Opened)
    nowhere = Genesis(cluster_id=CLUSTER, log_id=LOG, domain=5, domains=4)
    assert why(Machine().apply(1, entry(nowhere)).verdicts[0]) is Why.MALFORMED


def test_open_and_genesis_stand_alone():
    tape = Tape()
    writer = tape.open()
    opening = Open(
        name="x", nonce=b"n" * 16, seen=0, instance=b"i" * 16, kind=SessionKind.TOOL,
        lowest_version=1, highest_version=1, wall_ms=NOW,
    )  # fmt: skip
    assert why(writer.do(opening)) is Why.STATE
    assert tape.write(entry(opening, KeepAlive())).outcome is Outcome.BAD
    assert tape.write(entry(opening, n=1)).outcome is Outcome.BAD
    assert why(tape.write(entry(KeepAlive())).verdicts[0]) is Why.STATE


def test_positions_must_increase():
    tape = Tape()
    with pytest.raises(Invalid):
        tape.machine.apply(1, b"")
    tape.machine.apply(1_000, b"")
    assert tape.machine.position == 1_000


def test_a_command_that_does_not_decode_is_refused_and_hinders_no_other():
    """M3, R-041"""
    tape = Tape()
    writer = tape.open()
    commands = [encode(AllocateProducerId(), 1), (200, b"?"), (5, b"\xff"), encode(AllocateProducerId(), 1)]
    raw = envelope.encode(commands, version=1, session=writer.session, n=1, time_ms=NOW, seen_position=0, seen_digest=0)
    first, second, third, fourth = tape.write(raw).verdicts
    assert (first.producer_id, fourth.producer_id) == (0, 1)
    assert why(second) is Why.MALFORMED
    assert why(third) is Why.MALFORMED


@pytest.mark.parametrize("damage", ["count", "cut", "flags", "version 0"])
def test_a_broken_entry_of_a_live_session_uses_up_its_number_and_does_nothing_else(damage):
    """M3, Q2"""
    tape = Tape()
    writer = tape.open()
    writer.pass_time(5_000)
    raw = bytearray(writer.entry(AllocateProducerId()))
    match damage:
        case "count":
            raw[2] = 9
        case "cut":
            del raw[-1]
        case "flags":
            raw[1] = 1
        case _:
            raw[0] = 0
    assert tape.write(bytes(raw)).outcome is Outcome.BAD
    assert (tape.machine.time_ms, tape.machine.producer_ids.next) == (NOW, 0)
    assert tape.write(writer.entry(AllocateProducerId(), n=2)).outcome is Outcome.EXECUTED


def test_a_rule_that_fails_is_a_refusal_and_not_an_exception(monkeypatch):
    """M3"""
    shop = Shop()

    def failing(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(shop.machine.offsets, "apply", failing)
    assert why(shop.writer.do(CommitOffsets(group="g", rows=()))) is Why.INTERNAL
    assert shop.writer.send(KeepAlive()).outcome is Outcome.EXECUTED

    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(shop.machine.offsets, "apply", exhausted)
    with pytest.raises(MemoryError):
        shop.writer.do(CommitOffsets(group="g", rows=()))


def test_a_refused_command_changes_nothing():
    """M3, R-041: every refusal in a random history leaves the state as it was."""
    world = World(21).run(400)
    machine, refusals = Machine(), 0
    for position, raw in world.tape.entries:
        before = checkpoint.dump(machine) if position % 3 == 0 else None
        applied = machine.apply(position, raw, True)
        if before is None or applied.outcome is not Outcome.EXECUTED or applied.session == 0:
            continue
        if all(isinstance(verdict, Refused) for verdict in applied.verdicts or []):
            refusals += 1
            again = checkpoint.load(before)
            head = envelope.decode_head(raw)
            empty = envelope.encode(
                [], version=1, session=head.session, n=head.n, time_ms=head.time_ms, seen_position=0, seen_digest=0
            )
            again.apply(position, empty)
            for copy in (again, machine):
                copy.sessions.live[head.session].last_hash = b"same"
            again.digest = machine.digest
            assert checkpoint.fingerprint(again) == checkpoint.fingerprint(machine)
    assert refusals > 5


def broken(dice: random.Random, raw: bytes) -> bytes:
    """The entry with flipped bytes (mostly behind its head, so that its commands are reached), or cut."""
    bad = bytearray(raw)
    roll = dice.random()
    if roll < 0.3 and len(bad) > envelope.HEAD.size:
        for _ in range(dice.randrange(1, 6)):
            bad[dice.randrange(envelope.HEAD.size, len(bad))] = dice.choice([0, 1, 0x7F, 0xFF, dice.randrange(256)])
    elif roll < 0.4 and bad:
        bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
    elif roll < 0.45 and bad:
        bad = bad[: dice.randrange(len(bad))] + dice.randbytes(dice.randrange(4))
    return bytes(bad)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(3))
def test_broken_logs_raise_nothing_and_all_replicas_agree(chunk):
    """M3: 300 logs of broken entries."""
    executed = 0
    for seed in range(100 * chunk, 100 * chunk + 100):
        dice = random.Random(seed)
        source = World(seed % 20).run(60).tape.entries
        live, follower = Machine(), Machine()
        for position, raw in source:
            bad = broken(dice, raw) if position > 2 else raw
            told = live.apply(position, bad, True)
            silent = follower.apply(position, bad)
            assert (told.outcome, told.streams, told.ended) == (silent.outcome, silent.streams, silent.ended), seed
            for verdict in told.verdicts or []:
                assert not isinstance(verdict, Refused) or verdict.why is not Why.INTERNAL, (seed, verdict)
            executed += told.outcome is Outcome.EXECUTED
        assert live.digest == follower.digest
        assert checkpoint.fingerprint(live) == checkpoint.fingerprint(follower)
    assert executed > 2_000


def test_the_digest_chains_every_entry_and_every_offset_given():
    """M4, Q6"""
    world = World(41).run(200)
    entries = world.tape.entries
    digests = []
    machine = Machine()
    for position, raw in entries:
        machine.apply(position, raw)
        digests.append(machine.digest)
    assert len(set(digests)) == len(digests)
    # An entry that does nothing still counts: a replica that missed it differs.
    other = Machine()
    for position, raw in entries[:-1]:
        other.apply(position, raw)
    other.apply(entries[-1][0], b"nothing")
    assert other.digest != machine.digest
    # Two entries that both do nothing are told apart by their bytes alone, and so are two positions.
    copies = [checkpoint.load(checkpoint.dump(machine)) for _ in range(3)]
    for copy, position, raw in zip(copies, (9_000, 9_000, 9_001), (b"x", b"y", b"x"), strict=True):
        copy.apply(position, raw)
    assert len({copy.digest for copy in copies}) == 3
    # The same bytes with another base offset give another digest.
    twins = [Shop(), Shop()]
    for twin in twins:
        [stream] = twin.topic("t", 1)
    assert twins[0].machine.digest == twins[1].machine.digest
    twins[0].machine.streams.find(stream).index.end = 7
    for twin in twins:
        twin.append((stream, 1))
    assert twins[0].machine.digest != twins[1].machine.digest


def test_two_logs_with_other_ids_have_other_digests():
    """M4"""
    found = set()
    for log_id in (b"12345678", b"12345679"):
        machine = Machine()
        machine.apply(1, entry(Genesis(cluster_id=CLUSTER, log_id=log_id, domain=0, domains=1)))
        found.add(machine.digest)
    assert len(found) == 2


def test_an_entry_above_the_active_version_does_nothing_and_closes_its_session():
    """M5"""
    tape = Tape()
    writer = tape.open()
    applied = tape.write(writer.entry(AllocateProducerId(), version=2))
    assert applied.outcome is Outcome.TOO_NEW
    assert [end.reason for end in applied.ended] == [EndReason.TOO_NEW]
    assert tape.machine.producer_ids.next == 0
    assert tape.write(writer.entry(AllocateProducerId())).outcome is Outcome.DEAD


def test_a_version_is_activated_only_when_every_broker_and_compactor_knows_it():
    """M5, M12"""
    tape = Tape()
    newer = SUPPORTED + 1
    writer = tape.open("b1", highest_version=newer)
    old = tape.open("b2")
    tape.open("tool", kind=SessionKind.TOOL)
    assert why(writer.do(Activate(version=newer))) is Why.VERSION
    tape.open("b2", highest_version=newer + 1)
    assert old.send(KeepAlive()).outcome is Outcome.DEAD
    assert writer.do(Activate(version=1)) == Done()
    applied = writer.send(Activate(version=newer))
    assert applied.verdicts == [Done()]
    assert applied.catalog_changed
    assert tape.machine.version == newer > SUPPORTED
    before = tape.machine.position
    assert tape.write(writer.entry(KeepAlive(), n=4)).outcome is Outcome.HALTED
    assert tape.machine.position == before


def test_an_open_that_does_not_support_the_active_version_is_refused():
    """M5"""
    tape = Tape()
    applied = tape.write(tape.open_entry("b1", lowest_version=2, highest_version=3))
    assert why(applied.verdicts[0]) is Why.VERSION
    opening = tape.open_entry("b1")
    assert why(tape.write(b"\x02" + opening[1:]).verdicts[0]) is Why.VERSION


def test_an_entry_is_capped_by_rows():
    """M7, Q8"""
    shop = Shop()
    one, two = shop.topic("t", 2)
    half = [row(one)] * (MAX_ROWS // 2)
    first, second, third = shop.writer.send(
        shop.command(*half), shop.command(*half), shop.command(row(two))
    ).verdicts  # fmt: skip
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert why(third) is Why.LIMIT
    assert shop.machine.streams.rows == MAX_ROWS


def test_slices_share_what_the_other_commands_of_an_entry_leave():
    """M7, Q8"""
    shop = Shop()
    one, two = shop.topic("t", 2)
    for stream in (one, two):
        shop.append(*[(stream, 1)] * 2_000)
    cut = [RaiseFloor(stream=stream, reason=FloorReason.SIZE, bound=0) for stream in (one, two)]
    verdicts = shop.writer.send(cut[0], shop.command(*[row(two)] * 100), cut[1]).verdicts
    assert verdicts[0] == FloorRaised(start=2_000, left=0)
    assert len(verdicts[1]) == 100
    assert verdicts[2] == FloorRaised(start=2_100, left=2_100 - (MAX_ROWS - 102 - 2_000))
    closes = shop.writer.send(CloseStream(stream=one), CloseStream(stream=two)).verdicts
    assert closes == [StreamClosed(left=0), StreamClosed(left=0)]


def test_followers_get_no_verdicts_and_the_same_news():
    shop = Shop()
    [one] = shop.topic("t", 1)
    shop.append((one, 1))
    follower = Machine()
    for position, raw in shop.tape.entries:
        applied = follower.apply(position, raw)
    assert (applied.outcome, applied.verdicts, applied.streams) == (Outcome.EXECUTED, None, (one,))
    assert follower.digest == shop.machine.digest
