"""Gzip that every Kafka client reads: one member.

The format allows several, one behind the other, and Java reads them all.
librdkafka reads the first: of the records in the others its consumers never
hear, and where the first member is empty the process is aborted. No producer
writes several, so nothing is lost by refusing them.

Invariants
    B8  Gzip that is stored is one member.
"""

import struct
import zlib
from typing import Final

from dray.buffers import Buffer
from dray.records.errors import BadCompression

_SIZE: Final = struct.Struct("<I")
_GZIP: Final = 16 + zlib.MAX_WBITS


def check_member(compressed: Buffer, size: int) -> None:
    """Raise `BadCompression` unless gzip that expands to `size` bytes, of which it was seen, has one member (B8).

    A member ends with the size of what it holds, and that of the last tells of the whole unless all others are
    empty. Then the first is empty, which its first byte shows.
    """
    source = memoryview(compressed)
    (told,) = _SIZE.unpack_from(source, len(source) - _SIZE.size)
    if told != size & 0xFFFF_FFFF or not zlib.decompressobj(_GZIP).decompress(source, 1):
        raise BadCompression("gzip must be one member", size=size, last_member=told)
