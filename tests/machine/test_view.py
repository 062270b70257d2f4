"""The state under the spec's keys."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import Invalid
from dray.machine import listing
from dray.machine.access import API_KEY_KEY, SECRET_KEY
from dray.machine.brokers import BROKER_KEY, Listener
from dray.machine.brokers import RegisterBroker as Register
from dray.machine.confirmations import CHECKPOINT_KEY
from dray.machine.garbage import GARBAGE_KEY, OBJECT_KEY, PIN_KEY, Pin
from dray.machine.heaps.catalog import HEAP_KEY
from dray.machine.heaps.shards import SHARD_KEY
from dray.machine.keys import Shape
from dray.machine.listing import MACHINE_KEY
from dray.machine.machine import Machine
from dray.machine.names import wal_id
from dray.machine.offsets import GROUP_OFFSET_KEY, CommitOffsets, OffsetRow
from dray.machine.sessions import SESSION_KEY, KeepAlive
from dray.machine.stream import INDEX_KEY, LOG_END_KEY, LOG_START_KEY, PRODUCER_KEY, STREAM_KEY
from dray.machine.streams import FloorReason, RaiseFloor
from dray.machine.topics import PARTITION_KEY, TOPIC_KEY

from .scribe import CLUSTER, LOG, NOW, entry
from .shop import Shop, row
from .world import World

PARTS = {"#": st.integers(0, 10**20 - 1), "$": st.text(), "%": st.binary(min_size=1, max_size=20)}
SHAPES = [
    API_KEY_KEY, BROKER_KEY, CHECKPOINT_KEY, GARBAGE_KEY, GROUP_OFFSET_KEY, INDEX_KEY, LOG_END_KEY, LOG_START_KEY,
    MACHINE_KEY, HEAP_KEY, OBJECT_KEY, PARTITION_KEY, PIN_KEY, PRODUCER_KEY, SECRET_KEY, SESSION_KEY, SHARD_KEY,
    STREAM_KEY, TOPIC_KEY,
]  # fmt: skip
KEYS = st.sampled_from(SHAPES).flatmap(
    lambda shape: st.tuples(
        st.just(shape), st.tuples(*(PARTS[piece] for piece in shape.pattern.split("/") if piece in PARTS))
    )
)


def shapes_of(key: str) -> list[Shape]:
    return [shape for shape in SHAPES if shape.parse(key) is not None]


@given(KEYS)
def test_builders_and_parsers_are_inverse(wanted):
    """M9, R-054, E-3"""
    shape, parts = wanted
    key = shape.build(*parts)
    assert key.startswith("/dray/v1/")
    assert shape.parse(key) == parts
    assert shapes_of(key) == [shape], "no key is of two kinds"


@given(st.text(alphabet="/%0123456789abcdefstreams-hwm.~ü", max_size=60))
def test_a_key_that_parses_is_the_key_that_is_built(tail):
    """M9"""
    key = "/dray/v1/" + tail
    for shape in shapes_of(key):
        assert shape.build(*shape.parse(key)) == key


def test_keys_look_as_the_spec_says():
    """R-046, R-056, E-3"""
    assert INDEX_KEY.build(65_536, 7, 104) == (
        "/dray/v1/streams/00000000000000065536/offset-index/00000000000000000007/00000000000000000104"
    )
    assert TOPIC_KEY.build("a/b ü~.x_-") == "/dray/v1/topics/a%2Fb%20%C3%BC%7E.x_-"
    for bad in ("", "/dray/v2/topics/a", "/dray/v1/nope", "/dray/v1/sessions/7", "/dray/v1/topics/a/partitions/x"):
        assert not shapes_of(bad)
    for parts in ((), ("a", "b"), (-1,), ("x",)):
        with pytest.raises(Invalid):
            SESSION_KEY.build(*parts)


def busy_shop() -> tuple[Shop, int]:
    shop = Shop()
    [stream] = shop.topic("orders", 1)
    listener = Listener(name="PLAIN", host="h", port=9092)
    shop.writer.send(Register(broker_id=5, zone="a", rack="r", listeners=(listener,), started_ms=NOW))
    shop.append_rows(row(stream, 3, producer=0, sequence=0, epoch=0), row(stream, 2))
    shop.append((stream, 1))
    topic = shop.machine.topics.named("orders")
    shop.writer.send(CommitOffsets(group="g", rows=(OffsetRow(topic_id=topic.id, partition=0, offset=4),)))
    shop.writer.send(Pin(pin="job"))
    return shop, stream


def test_all_state_is_listed_in_key_order_and_found_by_its_key():
    """R-046, R-054, R-055, R-056, R-058, R-059"""
    shop, stream = busy_shop()
    listed = dict(listing.ls(shop.machine))
    assert list(listed) == sorted(listed)
    json.dumps(listed)
    for key, value in listed.items():
        assert listing.get(shop.machine, key) == value, key
        assert shapes_of(key)
    broker = listed[BROKER_KEY.build(CLUSTER, 5)]
    assert (broker["zoneId"], broker["advertisedListeners"]) == ("a", [{"name": "PLAIN", "host": "h", "port": 9092}])
    assert listed[PARTITION_KEY.build("orders", 0)]["streamId"] == stream
    entry_ = listed[INDEX_KEY.build(stream, 5, 208)]
    assert (entry_["startOffset"], entry_["endOffset"], entry_["recordCount"], entry_["length"]) == (3, 5, 2, 100)
    assert (entry_["fileType"], entry_["walId"]) == ("WAL", wal_id(LOG, shop.writer.session, 1).hex())
    assert listed[LOG_END_KEY.build(stream)] == {"offset": 6}
    topic = shop.machine.topics.named("orders")
    assert listed[GROUP_OFFSET_KEY.build("g", topic.id, 0)]["offset"] == 4
    assert listed[PRODUCER_KEY.build(stream, 0)]["batches"] == [{"sequence": 0, "records": 3, "base": 0}]


def test_a_prefix_lists_what_begins_with_it():
    shop, stream = busy_shop()
    everything = list(listing.ls(shop.machine))
    for prefix in ("/dray/v1/str", "/dray/v1/topics/", "/dray/v1/topics/orders/part", "/dray/v1/wal", "/", "/x", "",
                   STREAM_KEY.build(stream) + "/off", STREAM_KEY.build(stream) + "/prod"):  # fmt: skip
        assert list(listing.ls(shop.machine, prefix)) == [item for item in everything if item[0].startswith(prefix)]


def test_what_is_not_there_is_not_found():
    shop, stream = busy_shop()
    missing = [
        "nonsense", INDEX_KEY.build(stream, 5, 207), INDEX_KEY.build(stream, 4, 208),
        INDEX_KEY.build(1, 5, 208), INDEX_KEY.build(stream, 99, 208), TOPIC_KEY.build("x"),
    ]  # fmt: skip
    assert [listing.get(shop.machine, key) for key in missing] == [None] * len(missing)


def test_garbage_and_the_log_start_are_shown():
    shop, stream = busy_shop()
    shop.writer.send(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=5))
    listed = dict(listing.ls(shop.machine))
    assert listed[LOG_START_KEY.build(stream)] == {"offset": 5}
    gone = listed[GARBAGE_KEY.build(0, wal_id(LOG, shop.writer.session, 1))]
    assert gone["deleting"] is False


def test_any_entry_can_be_shown():
    """Every entry of a random log, and nonsense."""
    machine = Machine()
    for _, raw in World(8).run(300).tape.entries:
        json.dumps(listing.render(machine, raw))
    shown = listing.render(machine, entry(KeepAlive(), session=3, n=7))
    assert (shown["session"], shown["n"], shown["commands"]) == (3, 7, [{"type": "KeepAlive"}])
    assert "bad" in listing.render(machine, b"?")
    broken = bytearray(entry(KeepAlive()))
    broken[-1] = 0x91
    assert "bad" in listing.render(machine, bytes(broken))["commands"][0]


def test_a_random_world_can_be_listed():
    machine = World(12).run(400).machine
    listed = list(listing.ls(machine))
    assert [key for key, _ in listed] == sorted(key for key, _ in listed)
    json.dumps(listed)
