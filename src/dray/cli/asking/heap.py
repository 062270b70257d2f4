"""Heaps: priority queues with leases. Make, list, describe, alter, fill, empty and delete them."""

import asyncio
import sys
from datetime import timedelta
from typing import Annotated, Final

import typer

from dray.cli.asking._connecting import Yes, confirm, given, pairs
from dray.cli.asking._heaping import GrpcEndpoint, HeapConfigs, HeapName, ask_heaps, document_of, options_of, text_of
from dray.cli.heap_forms import AtMost, HeapModeName, HeapModeOption, InState, Labels, MessageState
from dray.cli.tables import TableFormat, TableOption, facts, show
from dray.client import Client, Enqueued, HeapInfo, Job, Mode, Peeked, State, Stats
from dray.config import format_duration, parse_duration

app: Final = typer.Typer(no_args_is_help=True)


@app.command("create")
def create_command(
    heap: HeapName,
    mode: HeapModeOption = HeapModeName.MIN,
    partitions: Labels = 1,
    configs: HeapConfigs = None,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make a heap."""
    options = options_of(configs)
    chosen = Mode.MAX if mode is HeapModeName.MAX else Mode.MIN
    made = ask_heaps(endpoint, lambda client: client.make_heap(heap, mode=chosen, partitions=partitions, **options))
    _show_infos(form, [made])


@app.command("list")
def list_command(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only those whose names begin with this.")] = "",
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """The heaps of the cluster."""
    _show_infos(form, ask_heaps(endpoint, lambda client: client.heaps(prefix)))


@app.command("describe")
def describe_command(heap: HeapName, endpoint: GrpcEndpoint = None, form: TableOption = TableFormat.TEXT) -> None:
    """How a heap is set, and how it stands."""

    async def look(client: Client) -> tuple[HeapInfo, Stats]:
        return await client.describe_heap(heap), await client.heap(heap).stats()

    info, stats = ask_heaps(endpoint, look)
    if form is TableFormat.TEXT:
        facts(
            {
                "heap": info.name,
                "mode": info.mode.name.lower(),
                "partitions": info.partitions,
                "lease": format_duration(info.visibility_timeout),
                "retries": info.max_retries,
                "paused": "yes" if info.paused else "no",
                "kept": info.durability,
            }
        )
        typer.echo()
    _show_stats(form, [stats])


@app.command("alter")
def alter_command(
    heap: HeapName,
    configs: HeapConfigs = None,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="So many take messages.")] = None,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Change configs of a heap."""
    options = options_of(configs)
    altered = ask_heaps(endpoint, lambda client: client.alter_heap(heap, partitions=partitions, **options))
    _show_infos(form, [altered])


@app.command("delete")
def delete_command(
    heap: HeapName, yes: Yes = False, endpoint: GrpcEndpoint = None, form: TableOption = TableFormat.TEXT
) -> None:
    """Delete a heap with all its messages."""
    confirm(heap, yes, f"delete the heap {heap} with all its messages", blind=True)
    ask_heaps(endpoint, lambda client: client.delete_heap(heap))
    show(form, {"heap": heap, "deleted": True}, ("HEAP", "DELETED"), [(heap, "yes")])


@app.command("stats")
def stats_command(
    heap: Annotated[str | None, typer.Argument(metavar="HEAP", help="One heap.", show_default="all")] = None,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """How heaps stand."""
    _show_stats(form, ask_heaps(endpoint, lambda client: client.stats_of(heap or "")))


@app.command("peek")
def peek_command(
    heap: HeapName,
    limit: AtMost = 10,
    state: InState = MessageState.READY,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Look at messages without taking them, the best first."""
    found = ask_heaps(endpoint, lambda client: client.heap(heap).peek(limit, State[state.name]))
    show_messages(form, found)


@app.command("push")
def push_command(
    heap: HeapName,
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="The message.", show_default="each line of stdin")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Its priority.")] = 0,
    delay: Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Not before so long, as 30s.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Messages of one key have one partition.")] = None,
    dedup_key: Annotated[
        str | None, typer.Option("--dedup-key", help="The same key again is the same message.")
    ] = None,
    headers: Annotated[list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header.")] = None,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Put messages in: one, or each line of stdin."""
    after: timedelta | None = None if delay is None else given("--delay", parse_duration, delay)
    carried = pairs("--header", headers)
    lines = [line.rstrip("\n").encode() for line in sys.stdin] if payload is None else [payload.encode()]
    if dedup_key is not None and len(lines) > 1:
        raise typer.BadParameter("one key for several messages would be one message", param_hint="--dedup-key")

    async def push(client: Client) -> list[Enqueued]:
        target = client.heap(heap)
        return await asyncio.gather(
            *(
                target.enqueue(line, priority=priority, delay=after, key=key, dedup_key=dedup_key, headers=carried)
                for line in lines
            )
        )

    taken = ask_heaps(endpoint, push)
    messages = [{"id": one.message_id, "duplicate": one.duplicate, "partition": one.partition} for one in taken]
    rows = [(one.message_id, one.partition, "yes" if one.duplicate else "no") for one in taken]
    show(form, {"messages": messages}, ("ID", "PARTITION", "DUPLICATE"), rows)


@app.command("pop")
def pop_command(
    heap: HeapName,
    limit: AtMost = 1,
    wait: Annotated[str, typer.Option("--wait", metavar="TIME", help="Wait so long for each.")] = "1s",
    keep: Annotated[bool, typer.Option("--keep", help="Give them back instead of acking them.")] = False,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Take messages out, the best first, and ack them once they are printed."""
    seconds = given("--wait", parse_duration, wait).total_seconds()

    async def pop(client: Client) -> None:
        jobs: list[Job] = []
        async with client.heap(heap).pop(prefetch=limit, auto_ack=False) as consumer:
            while len(jobs) < limit:
                try:
                    jobs.append(await asyncio.wait_for(consumer.next(), seconds))
                except TimeoutError:
                    break
            _show_jobs(form, jobs)
            sys.stdout.flush()
            await asyncio.gather(*(job.release() if keep else job.ack() for job in jobs))

    ask_heaps(endpoint, pop)


@app.command("purge")
def purge_command(
    heap: HeapName,
    leased: Annotated[bool, typer.Option("--leased", help="Also what consumers hold.")] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Also the dead letters.")] = False,
    yes: Yes = False,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Delete the messages that are in a heap now."""
    confirm(heap, yes, f"delete the messages of the heap {heap}", blind=True)
    count = ask_heaps(endpoint, lambda client: client.heap(heap).purge(include_leased=leased, include_dlq=dead))
    show(form, {"heap": heap, "purged": count}, ("HEAP", "PURGED"), [(heap, count)])


def show_messages(form: TableFormat, found: "list[Peeked]") -> None:
    """Messages that were looked at."""
    rows = [(one.id, one.priority, one.attempts, one.last_error, text_of(one.payload)) for one in found]
    document = {"messages": [document_of(one) for one in found]}
    show(form, document, ("ID", "PRIORITY", "ATTEMPTS", "ERROR", "PAYLOAD"), rows)


def _show_jobs(form: TableFormat, jobs: "list[Job]") -> None:
    messages = [
        {"id": job.id, "priority": job.priority, "attempts": job.attempts, "headers": job.headers,
         "payload": text_of(job.payload)}
        for job in jobs
    ]  # fmt: skip
    rows = [(job.id, job.priority, job.attempts, text_of(job.payload)) for job in jobs]
    show(form, {"messages": messages}, ("ID", "PRIORITY", "ATTEMPTS", "PAYLOAD"), rows)


def _show_infos(form: TableFormat, infos: "list[HeapInfo]") -> None:
    heaps = [
        {"heap": one.name, "mode": one.mode.name.lower(), "partitions": one.partitions, "revision": one.revision,
         "lease_seconds": one.visibility_timeout.total_seconds(), "max_retries": one.max_retries,
         "paused": one.paused}
        for one in infos
    ]  # fmt: skip
    rows = [
        (one.name, one.mode.name.lower(), one.partitions, format_duration(one.visibility_timeout), one.max_retries)
        for one in infos
    ]
    show(form, {"heaps": heaps}, ("HEAP", "MODE", "PARTITIONS", "LEASE", "RETRIES"), rows)


def _show_stats(form: TableFormat, found: "list[Stats]") -> None:
    heaps = [
        {"heap": one.heap, "ready": one.ready, "delayed": one.delayed, "leased": one.leased, "dead": one.dead,
         "oldest_ready_seconds": one.oldest_ready.total_seconds(), "enqueued": one.enqueued_total,
         "acked": one.acked_total, "failed": one.failed_total, "lease_timeouts": one.lease_timeouts_total}
        for one in found
    ]  # fmt: skip
    rows = [(one.heap, one.ready, one.delayed, one.leased, one.dead, one.enqueued_total, one.acked_total)
            for one in found]  # fmt: skip
    show(form, {"heaps": heaps}, ("HEAP", "READY", "DELAYED", "LEASED", "DEAD", "ENQUEUED", "ACKED"), rows)
