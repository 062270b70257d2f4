"""Where a file's footer is, and whether it is whole; needs no pyarrow."""

from typing import Final

from crc32c import crc32c

from dray.buffers import Buffer
from dray.errors import Corrupt

MAGIC: Final = b"PAR1"
_END: Final = 8


class BadFile(Corrupt):
    """The bytes are not one of our files, or not all of one."""


def footer_bytes(tail: Buffer) -> int:
    """How many bytes at the end of a file its footer takes, told by its last ones."""
    if len(tail) < _END or bytes(tail[-4:]) != MAGIC:
        raise BadFile("these bytes are not the end of a Parquet file", size=len(tail))
    return int.from_bytes(tail[-_END:-4], "little") + _END


def footer_crc(tail: Buffer) -> int:
    """The CRC-32C of the footer at the end of these bytes, its length and magic included; never 0."""
    needed = footer_bytes(tail)
    if needed > len(tail):
        raise BadFile("the footer is longer than the file", footer=needed, size=len(tail))
    return crc32c(tail[len(tail) - needed :]) or 1
