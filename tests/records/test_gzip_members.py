"""B8: gzip that every client reads."""

import gzip
import io

import pytest

from dray.records import BatchRules, Codec, NewRecord, ScratchPool, build_batch
from dray.records.codecs import expand
from dray.records.errors import BadCompression
from dray.records.layout import HEADER_SIZE
from tests.records.batch_samples import resealed, validate

POOL = ScratchPool(1 << 20)
PLAIN = build_batch([NewRecord(value=b"v" * 1_000) for _ in range(50)])
BODY = PLAIN[HEADER_SIZE:]
EMPTY = gzip.compress(b"")


def named(content: bytes, name: str) -> bytes:
    """A member that carries the name of a file."""
    out = io.BytesIO()
    with gzip.GzipFile(name, "wb", fileobj=out) as member:
        member.write(content)
    return out.getvalue()


def batch_with(packed: bytes) -> bytes:
    return resealed(PLAIN[:HEADER_SIZE] + packed, attributes=(21, b"\0\1"))


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(BODY[:700]) + gzip.compress(BODY[700:]),
        EMPTY + gzip.compress(BODY),
        gzip.compress(BODY) + EMPTY,
        EMPTY + EMPTY + gzip.compress(BODY) + EMPTY,
        named(b"", "n" * 60_000) + gzip.compress(BODY),
    ],
    ids=["two", "empty first", "empty last", "empty around it", "empty with a long name first"],
)
def test_gzip_of_several_members_is_not_stored(packed: bytes) -> None:
    """B8"""
    assert bytes(expand(Codec.GZIP, packed, len(BODY))) == BODY  # what was stored before is read
    with pytest.raises(BadCompression, match="one member"):
        validate(batch_with(packed), BatchRules(), POOL)


@pytest.mark.parametrize("packed", [gzip.compress(BODY), gzip.compress(BODY, 0), named(BODY, "n" * 60_000)])
def test_gzip_of_one_member_is_stored(packed: bytes) -> None:
    assert validate(batch_with(packed), BatchRules(), POOL).record_count == 50
