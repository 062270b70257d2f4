"""What is known of a file that holds the rows of one stream, besides its object.

A compactor wrote it from a range of the stream. It may have two owners: the
row of the index that it stands for, and the topic's table, which names it from
the moment at which a commit *may* have been tried until a compactor says that
no snapshot reaches it any more. What a table can be made anew from is here:
ranges, counts and times, so that nobody has to open the files for it.
"""

from dataclasses import dataclass

from dray.machine.names import ObjectId, StreamId, TopicId
from dray.machine.packing import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A file of one stream and one range of offsets."""

    stream: StreamId
    topic_id: TopicId
    partition: int
    start: int
    end: int
    """Its records lie in [start, end); offsets may be missing."""
    records: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    arrived_ms: int
    """When the last of its records came, as far as the log knows: a file is no younger than what it was made from."""
    held: bool
    """The table may name it."""
    footer_crc: int
    """Of the end of the file: nothing of it is believed that does not match; 0: not known."""
    passed: bool = False
    """The log start has passed all of it: only a table can show it, and one that keeps what the log drops does."""


def dump_files(files: dict[ObjectId, TableFile], out: Writer) -> None:
    out.values([len(files)])
    for number, file in sorted(files.items()):
        out.values([
            number, file.stream, file.topic_id, file.partition, file.start, file.end, file.records,
            file.min_timestamp_ms, file.max_timestamp_ms, file.arrived_ms, int(file.held), file.footer_crc,
            int(file.passed),
        ])  # fmt: skip


def load_files(source: Reader) -> dict[ObjectId, TableFile]:
    (count,) = source.ints(1)
    files: dict[ObjectId, TableFile] = {}
    for _ in range(count):
        row = source.row()
        number = ObjectId(row.number())
        files[number] = TableFile(
            stream=StreamId(row.number()), topic_id=TopicId(row.raw()), partition=row.number(), start=row.number(),
            end=row.number(), records=row.number(), min_timestamp_ms=row.number(), max_timestamp_ms=row.number(),
            arrived_ms=row.number(), held=bool(row.number()), footer_crc=row.number(),
            passed=bool(row.number()),
        )  # fmt: skip
    return files
