"""Reads records of topics into a pipe."""

import select
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from dray.cli.asking._completing import groups_like, topics_like
from dray.cli.asking._connecting import Bootstrap, Profile, ask, given
from dray.cli.asking._moving import Delimiter, EncodingOption, KeySeparator, Null, bootstrap_servers, line_form
from dray.cli.interrupts import Interrupts, interruptible
from dray.cli.output import nobody_reads
from dray.cli.record_forms import Encoding, LineForm, unescape, write_json, write_line, write_tsv
from dray.cli.tables import TableFormat, TableOption
from dray.kafka_client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from dray.kafka_client.library import library
from dray.kafka_client.places import FORMS, AtTime, WantedPlace, find, parse_target, what_they_hold
from dray.kafka_client.record import Incoming
from dray.kafka_client.topics import places_of

if TYPE_CHECKING:
    from dray.kafka_client.reading import RecordReader

Ends = Mapping[TopicPartition, int]
_FIRST: Final = "earliest"


def command(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to read.", autocompletion=topics_like)],
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help=f"Where to begin: {FORMS}; -N is so many before the end of each partition."
        ),
    ] = _FIRST,
    until: Annotated[
        str | None, typer.Option("--until", metavar="PLACE", help="Where to end; by default where the topic ends now.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written later.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many records.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            autocompletion=groups_like,
            help="Read as a member of this group, and commit what was printed.",
        ),
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; as often as needed.")
    ] = None,
    separator: KeySeparator = None,
    delimiter: Delimiter = r"\n",
    null: Null = None,
    encoding: EncodingOption = Encoding.TEXT,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Fail after so many seconds without an answer; not with --follow.")
    ] = 120.0,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Print records: values as lines of text, rows of TSV, or a JSON object a line."""
    target = given("--from", parse_target, begin)
    end = None if until is None else given("--until", parse_target, until)
    _check(target, end, follow=follow, group=group, partitions=partitions)
    lines = line_form(separator, null, encoding)
    write = _form_of(form, lines, given("--delimiter", unescape, delimiter))
    servers = bootstrap_servers(bootstrap, profile)
    with library():
        from dray.kafka_client.reading import read_as_member, read_partitions

    def warn(text: str) -> None:
        typer.echo(f"dray: {text}", err=True)

    async def plan(cluster: Cluster) -> tuple[Ends, Ends]:
        places = [one for topic in dict.fromkeys(topics) for one in await places_of(cluster, topic, partitions or ())]
        if group is not None:
            return {}, {}
        held = await what_they_hold(cluster, places, committed=True)
        ends = {place: one.end for place, one in held.items()}
        return await find(cluster, held, target), ends if end is None else await find(cluster, held, end)

    starts, ends = ask(bootstrap, profile, plan)
    with interruptible() as heard:
        if group is None:
            reader = read_partitions(servers, starts, None if follow else ends, timeout_s=timeout_s, warn=warn)
        else:
            latest = target == AtTime(LATEST)
            reader = read_as_member(
                servers, group, topics, latest=latest, follow=follow, timeout_s=timeout_s, warn=warn
            )
        try:
            _pump(reader, sys.stdout.buffer, write, count, heard)
        except BrokenPipeError:
            nobody_reads()
        finally:
            reader.close()
    # A follow has no other end than being told to.
    if heard.code and not follow:
        raise typer.Exit(heard.code)


def _check(
    target: WantedPlace, end: WantedPlace | None, *, follow: bool, group: str | None, partitions: Sequence[int] | None
) -> None:
    """What does not go together."""
    if target == AtTime(LATEST) and not follow:
        raise typer.BadParameter("nothing is there yet after the latest record: add --follow", param_hint="--from")
    if end is not None and (follow or group is not None):
        raise typer.BadParameter("an end goes with neither --follow nor --group", param_hint="--until")
    if group is None:
        return
    if partitions:
        raise typer.BadParameter("a group gives its members their partitions", param_hint="--partition")
    if target not in (AtTime(EARLIEST), AtTime(LATEST)):
        raise typer.BadParameter(
            "a group begins where it is, and if it never was, at earliest or latest; `dray groups reset` moves it",
            param_hint="--from",
        )


def _form_of(form: TableFormat, lines: LineForm, delimiter: bytes) -> Callable[[Incoming], bytes]:
    match form:
        case TableFormat.TEXT:
            return lambda record: write_line(record, lines) + delimiter
        case TableFormat.TSV:
            return lambda record: write_tsv(record, lines) + b"\n"
        case TableFormat.JSON:
            return lambda record: write_json(record, lines) + b"\n"


def _pump(
    reader: "RecordReader",
    out: BinaryIO,
    write: Callable[[Incoming], bytes],
    count: int | None,
    heard: Interrupts,
) -> None:
    """Print until the end, the count, or a signal; a group's offset moves over what was printed alone."""
    left = count
    while not reader.finished and not heard.times and left != 0:
        records = reader.poll()[:left]
        for record in records:
            out.write(write(record))
        out.flush()
        reader.done_with(records)
        if left is not None:
            left -= len(records)
        if not records and _is_closed(out):
            raise BrokenPipeError


def _is_closed(out: BinaryIO) -> bool:
    """Whether nobody reads the pipe any more: a follow without records would never find out by writing."""
    try:
        watch = select.poll()
        watch.register(out.fileno(), 0)
        return bool(watch.poll(0))
    except (OSError, ValueError):
        return False  # no pipe, no terminal: nobody who could go
