"""Conditional and atomic appends against dicts."""

import random

import pytest

from dray.machine import checkpoint
from dray.machine.append import MALFORMED, UNKNOWN_STREAM, Accepted, Appended, Duplicate
from dray.machine.append_if import MAX_TRANSACTIONS, AppendIf, AppendTorn, EndMoved
from dray.machine.command import BadCommand
from dray.machine.names import StreamId, stream_id
from dray.machine.streams import CloseStream
from dray.machine.verdict import Refused, Why

from .shop import Shop, row


def shop_with(partitions: int) -> tuple[Shop, list[StreamId]]:
    shop = Shop(version=2)
    return shop, shop.topic("t", partitions)


def ask(shop: Shop, *batches: tuple[int, int], expected: dict[StreamId, int] | None = None, txn: bytes = b"", **fields):
    command = shop.command(*(row(stream, records, **fields) for stream, records in batches))
    return shop.writer.do(AppendIf(append=command, expected=tuple((expected or {}).items()), txn=txn))


def ends(shop: Shop, streams: list[StreamId]) -> list[int]:
    return [shop.machine.streams.find(stream).end for stream in streams]


def test_an_append_with_the_end_that_is_there_is_taken_and_with_any_other_nothing_is():
    """AI1, L-04, L-32, L-33, L-37"""
    shop, [one] = shop_with(1)
    assert list(ask(shop, (one, 3), expected={one: 0})) == [Accepted(base=0)]
    for wrong in (0, 2, 4, (1 << 63) - 1):
        assert ask(shop, (one, 3), expected={one: wrong}) == EndMoved(stream=one, end=3)
    assert ends(shop, [one]) == [3]
    assert list(ask(shop, (one, 1), expected={one: 3})) == [Accepted(base=3)]


def test_of_many_with_one_expected_end_exactly_one_wins():
    """AI1, L-33, L-80, L-93"""
    shop, [one] = shop_with(1)
    verdicts = [ask(shop, (one, 2), expected={one: 0}) for _ in range(20)]
    assert [type(verdict) for verdict in verdicts] == [Appended, *[EndMoved] * 19]
    assert ends(shop, [one]) == [2]


def test_a_batch_over_streams_is_taken_whole_or_not_at_all():
    """AI1, L-01, L-61"""
    shop, [one, two] = shop_with(2)
    assert list(ask(shop, (one, 3), (two, 5))) == [Accepted(base=0), Accepted(base=0)]
    assert ask(shop, (one, 1), (stream_id(99, 0), 1)) == AppendTorn(row=1, code=UNKNOWN_STREAM)
    assert ask(shop, (one, 1), (two, 0)) == AppendTorn(row=1, code=MALFORMED)
    assert ask(shop, (one, 1), (one, 1)) == AppendTorn(row=1, code=MALFORMED)
    assert ask(shop, (one, 1), producer=3, sequence=0, epoch=0) == AppendTorn(row=0, code=MALFORMED)
    assert ask(shop, (one, 1), (two, 1), expected={one: 3, two: 4}) == EndMoved(stream=two, end=5)
    shop.writer.send(CloseStream(stream=two))
    assert isinstance(ask(shop, (one, 1), (two, 1)), AppendTorn)
    assert ask(shop, (one, 1), expected={two: 5}) == EndMoved(stream=two, end=0)
    assert ends(shop, [one]) == [3]


def test_what_was_not_taken_leaves_no_object_in_use():
    """X1, AI1"""
    shop, [one] = shop_with(1)
    ask(shop, (one, 1), expected={one: 7})
    ask(shop, (one, 0))
    assert [shop.machine.objects.find(number).rows for number in range(shop.machine.objects.next)] == [0, 0]
    assert shop.machine.streams.rows == 0


def test_a_repeat_gets_the_first_answer_whatever_the_end_is_by_then():
    """AI2, L-81"""
    shop, [one, two] = shop_with(2)
    txn = b"t" * 16
    assert list(ask(shop, (one, 3), (two, 1), expected={one: 0}, txn=txn)) == [Accepted(base=0), Accepted(base=0)]
    shop.append((one, 5), (two, 2))
    again = ask(shop, (one, 3), (two, 1), expected={one: 0}, txn=txn)
    assert list(again) == [Duplicate(base=0), Duplicate(base=0)]
    assert ends(shop, [one, two]) == [8, 3]


def test_a_name_of_a_transaction_means_one_thing():
    """AI2: other streams or other records under it are no repeat."""
    shop, [one, two] = shop_with(2)
    txn = b"t" * 16
    ask(shop, (one, 3), txn=txn)
    assert ask(shop, (one, 2), txn=txn) == AppendTorn(row=0, code=MALFORMED)
    assert ask(shop, (one, 3), (two, 1), txn=txn) == AppendTorn(row=1, code=MALFORMED)
    assert list(ask(shop, (two, 1), txn=txn)) == [Accepted(base=0)], "another stream has another memory"
    assert ends(shop, [one, two]) == [3, 1]


def test_a_stream_remembers_its_last_thousand_transactions_also_after_a_checkpoint():
    """AI3, K2, L-81, C-11"""
    shop, [one] = shop_with(1)
    names = [number.to_bytes(16, "big") for number in range(1, MAX_TRANSACTIONS + 2)]
    for name in names:
        ask(shop, (one, 1), txn=name)
    loaded = checkpoint.load(checkpoint.dump(shop.machine))
    assert list(loaded.streams.find(one).txns) == names[1:]
    assert checkpoint.dump(loaded) == checkpoint.dump(shop.machine)
    assert list(ask(shop, (one, 1), txn=names[-1])) == [Duplicate(base=MAX_TRANSACTIONS)]
    assert list(ask(shop, (one, 1), txn=names[0])) == [Accepted(base=MAX_TRANSACTIONS + 1)]
    shop.writer.send(CloseStream(stream=one))
    assert not shop.machine.streams.footprint().txns


def test_an_object_of_another_session_is_refused_and_before_version_2_there_is_no_such_command():
    """M10, H4"""
    shop, [one] = shop_with(1)
    command = shop.command(row(one))
    shop.reopen()
    verdict = shop.writer.do(AppendIf(append=command))
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.FOREIGN
    old = Shop()
    assert 101 not in old.machine.decoders._make_readers(1)


@pytest.mark.parametrize("cut", [0, 1, 2, 17, 18, 34, 50])
def test_bytes_that_are_cut_are_no_command(cut):
    """M1"""
    shop, [one] = shop_with(1)
    whole = AppendIf(append=shop.command(row(one)), expected=((one, 1),), txn=b"t" * 16).payload(2)
    assert AppendIf.reader(2)(whole).payload(2) == whole
    with pytest.raises(BadCommand):
        AppendIf.reader(2)(whole[:cut])
    with pytest.raises(BadCommand):
        AppendIf.reader(2)(b"\xff\xff" + whole[2:])


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_appends_equals_a_model(seed):
    """AI1, AI2, AI3, L-02, L-93"""
    dice = random.Random(seed)
    shop, streams = shop_with(3)
    ends_of = dict.fromkeys(streams, 0)
    taken: dict[bytes, dict[StreamId, tuple[int, int]]] = {}
    for _ in range(150):
        chosen = dice.sample(streams, dice.randrange(1, 4))
        batches = [(stream, dice.randrange(1, 4)) for stream in chosen]
        txn = dice.choice([b"", bytes([dice.randrange(1, 9)]) * 16])
        expected = {s: ends_of[s] + dice.choice([0, 0, 0, 1]) for s in chosen if dice.random() < 0.5}
        verdict = ask(shop, *batches, expected=expected, txn=txn)
        known = {s: taken[txn].get(s) for s, _ in batches} if txn in taken else {}
        if any(known.values()):
            if all(known[s] and known[s][1] == records for s, records in batches):
                assert list(verdict) == [Duplicate(base=known[s][0]) for s, _ in batches], seed
            else:
                assert isinstance(verdict, AppendTorn), seed
        elif any(ends_of[s] != end for s, end in expected.items()):
            moved = next(s for s, end in expected.items() if ends_of[s] != end)
            assert verdict == EndMoved(stream=moved, end=ends_of[moved]), seed
        else:
            assert list(verdict) == [Accepted(base=ends_of[s]) for s, _ in batches], seed
            for stream, records in batches:
                if txn:
                    taken.setdefault(txn, {})[stream] = (ends_of[stream], records)
                ends_of[stream] += records
        assert ends(shop, streams) == [ends_of[s] for s in streams], seed
    assert checkpoint.dump(checkpoint.load(checkpoint.dump(shop.machine))) == checkpoint.dump(shop.machine)
