"""Rows of Parquet files, for a task: a row group at a time, of which it fetches the columns that it was asked for.

A row of the plan is a file here. What the task holds is one group (SP4); what
it wants of the file is told by the offsets of its piece.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from dray.buffers import Buffer
from dray.errors import DrayError
from dray.objects.port import Objects
from dray.parquet.footer import footer_bytes
from dray.parquet.read import Footer, columns_of, footer_of, ranges_of, rows_of
from dray.pipeline.errors import told
from dray.pipeline.plan import Piece
from dray.pipeline.together import some_at_a_time

TAIL_BYTES: Final = 64 << 10
_STORED: Final = {"timestampType": "attributes"}
"""Columns of Spark's that lie in the file under another name; topic and partition are not read at all."""
_GIVEN: Final = ("topic", "partition")


def read_rows(
    loop: asyncio.AbstractEventLoop, objects: Objects, piece: Piece, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece's files: `offset`, and the stored columns that these of Spark's are made of.

    Raises:
        BrokenObject: a file is missing or damaged; it says which.
    """
    wanted = ["offset", *(_STORED.get(name, name) for name in columns if name not in (*_GIVEN, "offset"))]
    for row, owner in enumerate(piece.owners):
        path = piece.path(owner)
        start, end = max(piece.start, piece.bases[row]), min(piece.end, piece.bases[row] + piece.counts[row])
        try:
            footer = loop.run_until_complete(_footer(objects, path, piece.footer_crc(owner)))  # SP11
            for group in footer.groups[footer.first(start) :]:
                if group.start >= end:
                    break
                parts = loop.run_until_complete(_parts(objects, path, ranges_of(footer, group.number, wanted)))
                for found in columns_of(footer, group.number, parts, wanted):
                    yield _clip(found, start, end)
        except DrayError as error:
            raise told(
                error, object=path, topic=piece.topic, partition=piece.partition, stream=piece.stream,
                offset=piece.bases[row],
            ) from error  # fmt: skip


async def first_since(objects: Objects, path: str, crc: int, start: int, time_ms: int) -> int | None:
    """The first record of a file, at or behind an offset, that is not older than a time."""
    footer = await _footer(objects, path, crc)
    for group in footer.groups[footer.first(start) :]:
        if group.greatest_ms >= time_ms:
            content = await objects.get(path, group.position, group.position + group.size)
            for rows in rows_of(footer, group.number, content):
                found = rows.first_since(start, time_ms)
                if found is not None:
                    return found[0]
    return None


async def _parts(objects: Objects, path: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, Buffer]]:
    """Where each range begins, and its bytes."""
    found = await some_at_a_time(lambda part: objects.get(path, *part), ranges)
    parts: list[tuple[int, Buffer]] = []
    for (start, _), content in zip(ranges, found, strict=True):
        if isinstance(content, BaseException):
            raise content
        parts.append((start, content))
    return parts


async def _footer(objects: Objects, path: str, crc: int) -> Footer:
    size = (await objects.head(path)).size
    tail = await objects.get(path, max(0, size - TAIL_BYTES), size)
    needed = footer_bytes(tail)
    if len(tail) < needed <= size:
        tail = await objects.get(path, size - needed, size)
    return footer_of(tail, size, crc)


def _clip(found: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """Only what lies in [start, end): files go on where the log start, or another task, has cut."""
    offsets = found.column("offset")
    if not len(offsets) or (offsets[0].as_py() >= start and offsets[-1].as_py() < end):
        return found
    numbers = memoryview(offsets.buffers()[1]).cast("B").cast("q")[offsets.offset : offsets.offset + len(offsets)]
    low = bisect_left(numbers, start)
    return found.slice(low, bisect_left(numbers, end) - low)
