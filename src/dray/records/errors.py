"""Why a batch was refused, one class for each answer a server may give.

The classes know nothing about wire codes: a server maps them. `reason` is a
short constant word for metrics and logs.
"""

from typing import ClassVar

from dray.errors import Invalid


class InvalidBatch(Invalid):
    """A batch that breaks the format or the rules of its topic. Nothing of it is stored."""

    reason: ClassVar[str] = "invalid"
    blamed: tuple[int, ...] = ()
    """Which records are at fault, by their index, where it is some of them."""


class NotOneBatch(InvalidBatch):
    """No complete batch, or bytes after the one that was allowed."""

    reason = "not_one_batch"


class BadMagic(InvalidBatch):
    """Not message format 2."""

    reason = "bad_magic"


class BadBaseOffset(InvalidBatch):
    """A client's batch must begin at offset 0; the log gives the real one."""

    reason = "bad_base_offset"


class TooLarge(InvalidBatch):
    """Larger than the topic takes; the client may split it and try again."""

    reason = "too_large"


class ExpandsTooFar(TooLarge):
    """Its records, decompressed, pass the cap; no more than the cap was ever written."""

    reason = "expands_too_far"


class BadCrc(InvalidBatch):
    """The bytes are not those the client summed; sending them again may help."""

    reason = "bad_crc"


class BadCount(InvalidBatch):
    """Record count and last offset delta disagree, or there are no records."""

    reason = "bad_count"


class BadDeltas(InvalidBatch):
    """The offset deltas are not 0, 1, 2, ..."""

    reason = "bad_deltas"


class BadRecords(InvalidBatch):
    """A length inside the records does not fit, or the records do not end where the batch does."""

    reason = "bad_records"


class HeaderKeyNotUtf8(InvalidBatch):
    """A string column cannot hold this header key (E-15)."""

    reason = "header_key_not_utf8"


class ControlBatch(InvalidBatch):
    """Only brokers write control batches."""

    reason = "control_batch"


class Transactional(InvalidBatch):
    """A transactional batch where transactions are not offered."""

    reason = "transactional"


class BadSequence(InvalidBatch):
    """A producer id without a sequence."""

    reason = "bad_sequence"


class BadTimestamp(InvalidBatch):
    """A timestamp that no table can hold, that the topic's window refuses, or of the broker's type."""

    reason = "bad_timestamp"


class NullKey(InvalidBatch):
    """Records without a key on a compacted topic."""

    reason = "null_key"


class BadCodec(InvalidBatch):
    """Compressed by a codec that the format does not know."""

    reason = "bad_codec"


class BadCompression(InvalidBatch):
    """The compressed bytes cannot be read."""

    reason = "bad_compression"
