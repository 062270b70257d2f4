"""Each client reads what the others wrote, byte for byte and in order, whatever the codec."""

import pytest

from tests.clients.kinds import AT_MS, CODECS, KINDS, Kind, Written

LARGEST = 1_048_588 - 200
"""Leaves room for the headers of batch and record; clients count them differently."""
RECORDS = (
    Written(b"key", b"value", AT_MS),
    Written(None, b"no key", AT_MS + 1),
    Written(b"", b"empty key", AT_MS + 2),
    Written(b"no value", None, AT_MS + 3),
    Written(b"empty value", b"", AT_MS + 4),
    Written(None, b"x", AT_MS + 5),
    Written(b"h", b"headers", AT_MS + 6, (("a", b"1"), ("b", b""), ("a", b"2"), ("", b"no name"))),
    Written(b"n", b"null header", AT_MS + 6, (("a", None), ("a", b""))),
    Written(b"\x00\xff\n", bytes(range(256)) * 40, AT_MS + 7),
    Written(b"late", b"times run back", AT_MS - 1000),
    *(Written(b"%d" % n, b"v%d" % n, AT_MS + 10 + n, (("n", b"%d" % n),)) for n in range(300)),
)


def ids(kind: Kind) -> str:
    return kind.name


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", KINDS, ids=ids)
def test_everyone_reads_what_one_client_wrote(bootstrap: str, name: str, writer: Kind, codec: str) -> None:
    """R-038, R-119, T22: keys, null keys and values, doubled headers, an auto-created topic."""
    sent = [one for one in RECORDS if writer.null_headers or not any(value is None for _, value in one.headers)]
    assert writer.write(bootstrap, name, sent, codec) == list(range(len(sent)))
    for reader in KINDS:
        found = reader.read(bootstrap, name, 0, len(sent))
        assert [one.offset for one in found] == list(range(len(sent))), reader.name
        assert [one.record for one in found] == sent, reader.name


@pytest.mark.slow
@pytest.mark.parametrize("writer", KINDS, ids=ids)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_smallest_and_the_largest_record_pass(bootstrap: str, name: str, writer: Kind, codec: str) -> None:
    sizes = (1, 1000, 100_000, LARGEST)
    sent = [Written(None, (b"%d " % size * size)[:size], AT_MS) for size in sizes]
    assert writer.write(bootstrap, name, sent, codec) == [0, 1, 2, 3]
    for reader in KINDS:
        found = reader.read(bootstrap, name, 0, len(sent))
        assert [one.record.value for one in found] == [one.value for one in sent], reader.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_a_consumer_seeks_by_offset_and_by_time(bootstrap: str, name: str, kind: Kind) -> None:
    """R-133: the record's own time decides, also where times run back."""
    sent = [Written(None, b"%d" % n, AT_MS + at) for n, at in enumerate((0, 100, 50, 200, 150, 300))]
    kind.write(bootstrap, name, sent)
    assert [one.record.value for one in kind.read(bootstrap, name, 4, 2)] == [b"4", b"5"]
    for at, offset in ((-1, 0), (0, 0), (1, 1), (100, 1), (101, 3), (250, 5), (300, 5), (301, None)):
        assert kind.at(bootstrap, name, AT_MS + at) == offset, at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "idempotent"),
    [(KINDS[0], {"enable.idempotence": True}), (KINDS[1], {"enable_idempotence": True}), (KINDS[2], {})],
    ids=lambda value: value.name if isinstance(value, Kind) else "",
)
def test_idempotent_producers_work(bootstrap: str, name: str, kind: Kind, idempotent: dict[str, bool]) -> None:
    """R-099, R-100: several batches, one after the other."""
    for start in (0, 200):
        sent = [Written(None, b"%d" % n, AT_MS) for n in range(start, start + 200)]
        assert kind.write(bootstrap, name, sent, **idempotent) == list(range(start, start + 200))
    assert [one.record.value for one in kind.read(bootstrap, name, 0, 400)] == [b"%d" % n for n in range(400)]
