"""Writes what comes from a pipe into a topic."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dray.cli.asking._completing import topics_like
from dray.cli.asking._connecting import Bootstrap, Profile, ask, given
from dray.cli.asking._moving import Delimiter, EncodingOption, KeySeparator, Null, bootstrap_servers, line_form
from dray.cli.interrupts import Interrupts, interruptible
from dray.cli.output import FAILURE, Format, refuse
from dray.cli.record_forms import BadRecord, Encoding, LineForm, read_json, read_line, split, unescape
from dray.cli.tables import TableFormat, TableOption, show
from dray.kafka_client.cluster import Cluster
from dray.kafka_client.library import library
from dray.kafka_client.record import Outgoing
from dray.kafka_client.topics import create_topic, places_of

if TYPE_CHECKING:
    from dray.kafka_client.writing import RecordWriter, Tally

_CHUNK: Final = 1 << 16
_WAIT_S: Final = 0.2


class InputForm(Enum):
    """How records come in."""

    TEXT = "text"
    JSON = "json"


class Compression(Enum):
    """What makes batches smaller."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.", autocompletion=topics_like)],
    source: Annotated[
        InputForm,
        typer.Option("--input", "-i", help="text: a value a line. json: an object a line, as `dray consume` tells it."),
    ] = InputForm.TEXT,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    separator: KeySeparator = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Where to; by the key if this is not said.")
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="What makes batches smaller.")
    ] = Compression.NONE,
    delimiter: Delimiter = r"\n",
    null: Null = None,
    encoding: EncodingOption = Encoding.TEXT,
    whole: Annotated[bool, typer.Option("--whole", help="All of the input is one record.")] = False,
    repartition: Annotated[
        bool, typer.Option("--repartition", help="Choose partitions by key, whatever JSON says.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Make the topic if there is none.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after a record that was not stored; the exit code is 1 anyway.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Give a record up after so many seconds.")
    ] = 120.0,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Write records from the standard input.

    Each is counted: stored, failed, or unknown where it may have been stored. Any that is not stored ends the command
    with exit code 1, at once unless --keep-going is given.
    """
    if key is not None and separator is not None:
        raise typer.BadParameter("every record has this key, or its own: not both", param_hint="--key")
    lines = line_form(separator, null, encoding)
    end = given("--delimiter", unescape, delimiter)
    servers = bootstrap_servers(bootstrap, profile)
    base = Outgoing(
        key=None if key is None else key.encode(errors="surrogateescape"),
        value=None,
        headers=tuple(_header(text) for text in headers or ()),
        partition=partition,
    )
    with library():
        from dray.kafka_client.writing import LARGEST_BYTES, RecordWriter

    async def prepare(cluster: Cluster) -> None:
        if create:
            await create_topic(cluster, topic, if_not_exists=True)
        await places_of(cluster, topic, () if partition is None else (partition,))

    ask(bootstrap, profile, prepare)
    if sys.stdin.isatty():
        typer.echo("records come from the terminal, one a line; Ctrl-D ends", err=True)
    with interruptible() as heard:
        writer = RecordWriter(servers, topic, compression=compression.value, timeout_s=timeout_s)

        def go_on() -> bool:
            writer.poll()
            return not heard.times and (keep_going or writer.tally.good)

        chunks = _chunks(sys.stdin.buffer.fileno(), go_on)
        pieces = _whole(chunks, LARGEST_BYTES) if whole else split(chunks, end, LARGEST_BYTES)
        parse = _parser(source, lines, base, repartition=repartition)
        taken = _write_all(writer, pieces, parse, go_on)
        _settle(writer, heard)
    _tell(form, topic, taken, writer.tally, keep_going=keep_going)
    if heard.code:
        raise typer.Exit(heard.code)


def _header(text: str) -> tuple[str, bytes | None]:
    """NAME=VALUE; a name alone is a header of null."""
    name, equals, value = text.partition("=")
    return name, value.encode(errors="surrogateescape") if equals else None


def _chunks(descriptor: int, go_on: Callable[[], bool]) -> Iterator[bytes]:
    """What comes in, as it comes, for as long as one should go on."""
    while go_on():
        ready, _, _ = select.select([descriptor], [], [], _WAIT_S)
        if ready:
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                return
            yield chunk


def _whole(chunks: Iterator[bytes], largest: int) -> Iterator[bytes]:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > largest:
            raise BadRecord("a record is too large", limit=largest)
    yield bytes(found)


def _parser(source: InputForm, lines: LineForm, base: Outgoing, *, repartition: bool) -> Callable[[bytes], Outgoing]:
    """From a piece of the input to its record; what the options say goes over what JSON says."""

    def from_text(piece: bytes) -> Outgoing:
        key, value = read_line(piece, lines)
        return Outgoing(
            key=key if base.key is None else base.key, value=value, headers=base.headers, partition=base.partition
        )

    def from_json(piece: bytes) -> Outgoing:
        told = read_json(piece, lines.encoding)
        own = None if repartition else told.partition
        return Outgoing(
            key=told.key if base.key is None else base.key,
            value=told.value,
            headers=told.headers + base.headers,
            partition=own if base.partition is None else base.partition,
            timestamp_ms=told.timestamp_ms,
        )

    return from_text if source is InputForm.TEXT else from_json


def _write_all(
    writer: "RecordWriter",
    pieces: Iterator[bytes],
    parse: Callable[[bytes], Outgoing],
    go_on: Callable[[], bool],
) -> int:
    """Hand over every record of the input; returns how many were taken."""
    from dray.kafka_client.writing import RecordFailure

    number = 0
    try:
        for piece in pieces:
            if not go_on():
                break  # what is left of the input may be half a record
            number += 1
            try:
                writer.write(number, parse(piece))
            except BadRecord as error:
                writer.tally.refuse(RecordFailure(record=number, code="BAD_RECORD", reason=str(error)))
    except BadRecord as error:  # of the input itself: where the next record begins is not known
        number += 1
        writer.tally.refuse(RecordFailure(record=number, code="BAD_RECORD", reason=str(error)))
    return number


def _settle(writer: "RecordWriter", heard: Interrupts) -> None:
    """Wait for the end of every record: each has its time limit. A second Ctrl-C gives up."""
    while writer.pending():
        if heard.times > 1:
            writer.abandon()
            return


def _tell(form: TableFormat, topic: str, taken: int, tally: "Tally", *, keep_going: bool) -> None:
    """What became of the records; exit code 1 unless all are stored."""
    error = {}
    counts = {"stored": tally.stored, "failed": tally.failed, "unknown": tally.unknown}
    if not tally.good:
        then = "mend what is told above, and write those records again"
        if tally.unknown:
            then = "those of unknown end may be stored: look before you write them again"
        if not keep_going:
            then += f"; what follows record {taken} was not read"
        told = f"not every record was stored topic={topic} taken={taken} " + " ".join(
            f"{name}={count}" for name, count in counts.items()
        )
        error = {"error": {"kind": "unknown" if tally.unknown else "invalid", "message": told, "next": then}}
    document = {
        "topic": topic,
        "taken": taken,
        **counts,
        "partitions": [
            {"partition": number, "records": one.records, "first": one.first, "last": one.last}
            for number, one in sorted(tally.partitions.items())
        ],
        "failures": [{"record": one.record, "code": one.code, "reason": one.reason} for one in tally.failures],
        **error,
    }
    rows = [(number, one.records, one.first, one.last) for number, one in sorted(tally.partitions.items())]
    show(form, document, ("PARTITION", "RECORDS", "FIRST", "LAST"), rows)
    if tally.good:
        return
    if form is not TableFormat.JSON:
        for one in tally.failures:
            typer.echo(f"dray: record {one.record}: {one.code}: {one.reason}", err=True)
        refuse(Format.TEXT, [told], kind="invalid", then=then, program="dray")
    raise typer.Exit(FAILURE)
