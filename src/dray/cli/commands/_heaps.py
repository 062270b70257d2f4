"""`drayd admin heap` and `drayd admin dlq`: heaps and their dead letters, for who owns the log.

The verbs are those of `dray heap` and `dray dlq` that operate: to put messages
in and to take them out is for clients, by a broker.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
import typer

from dray.access.authorizer import Action
from dray.cli.confirming import DryRun, Yes, confirm, tell_dry_run
from dray.cli.heap_forms import (
    All,
    AtMost,
    HeapModeName,
    HeapModeOption,
    HeapName,
    InState,
    KeepTime,
    Labels,
    LetterIds,
    MessageState,
    NewPriority,
    PerSecond,
    chosen_letters,
    parse_heap_configs,
    text_of,
)
from dray.cli.options import ConfigFile, Sets
from dray.cli.places import Where, run_at
from dray.cli.tables import TableFormat, TableOption, facts, show
from dray.config import format_duration
from dray.heaps.asking import AskedBy
from dray.heaps.ids import MessageId, format_id, parse_id
from dray.heaps.peek import MAX_PAGE, PeekedMessage
from dray.heaps.service import HeapService
from dray.heaps.stats import HeapStats
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.packets import JSON
from dray.machine.heaps.rows import State
from dray.node.heaping import change_heaps, look_at_heaps

T = TypeVar("T")

heap: Final = typer.Typer(
    no_args_is_help=True, help="Heaps, for who owns the data directory or the log; brokers may run."
)
dlq: Final = typer.Typer(
    no_args_is_help=True, help="Dead letters of heaps, for who owns the data directory or the log."
)

NewConfigs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--heap-config", "-c", metavar="KEY=VALUE", help="A config of the heap; as often as needed."),
]
_MILLISECONDS: Final = {
    "visibility_timeout": "visibility_ms", "max_lease": "max_lease_ms", "backoff_base": "backoff_base_ms",
    "backoff_cap": "backoff_cap_ms", "retention": "retention_ms", "dedup_window": "dedup_window_ms",
    "message_ttl": "message_ttl_ms",
}  # fmt: skip


@heap.command("create")
def create(
    where: Where,
    name: HeapName,
    mode: HeapModeOption = HeapModeName.MIN,
    partitions: Labels = 1,
    configs: NewConfigs = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make a heap."""
    wanted = _with_configs(HeapConfig(), configs)

    async def make(service: HeapService, by: AskedBy) -> Heap:
        return await service.admin.make(name, mode=Mode[mode.name], partitions=partitions, config=wanted, by=by)

    _show_heaps(form, [_change(where, config, sets, Action.MAKE_HEAP, name, make)])


@heap.command("list")
def list_all(
    where: Where,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only those whose names begin with this.")] = "",
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """The heaps of the cluster."""
    _show_heaps(form, _look(where, config, sets, lambda service: _all(service, prefix)))


@heap.command("describe")
def describe(
    where: Where, name: HeapName, config: ConfigFile = None, sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:  # fmt: skip
    """How a heap is set, and how it stands."""

    async def look(service: HeapService) -> HeapStats:
        return await service.stats.of(await service.admin.find(name))

    stats = _look(where, config, sets, look)
    if form is TableFormat.TEXT:
        found = stats.heap
        facts(
            {
                "heap": found.name,
                "mode": found.mode.name.lower(),
                "partitions": found.partitions,
                "lease": _span(found.config.visibility_ms),
                "retries": found.config.max_retries,
                "paused": "yes" if found.config.paused else "no",
            }
        )
        typer.echo()
    _show_stats(form, [stats])


@heap.command("alter")
def alter(
    where: Where,
    name: HeapName,
    configs: NewConfigs = None,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="So many take messages.")] = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Change configs of a heap."""
    _with_configs(HeapConfig(), configs)  # wrong usage is told before anything is opened

    async def change(service: HeapService, by: AskedBy) -> Heap:
        found = await service.admin.find(name)
        wanted = _with_configs(found.config, configs)
        await service.admin.alter(found, wanted, partitions=partitions or 0, expected=found.revision, by=by)
        return await service.admin.find(name)

    _show_heaps(form, [_change(where, config, sets, Action.ALTER_HEAP, name, change)])


@heap.command("delete")
def delete(
    where: Where, name: HeapName, yes: Yes = False, config: ConfigFile = None, sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:  # fmt: skip
    """Delete a heap with all its messages."""
    confirm(name, yes, f"delete the heap {name} with all its messages", blind=True)

    async def end(service: HeapService, by: AskedBy) -> None:
        await service.admin.delete(await service.admin.find(name), by=by)

    _change(where, config, sets, Action.DELETE_HEAP, name, end)
    show(form, {"heap": name, "deleted": True}, ("HEAP", "DELETED"), [(name, "yes")])


@heap.command("stats")
def stats_of(
    where: Where,
    name: Annotated[str | None, typer.Argument(metavar="HEAP", help="One heap.", show_default="all")] = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """How heaps stand."""

    async def look(service: HeapService) -> list[HeapStats]:
        heaps = await _all(service) if name is None else [await service.admin.find(name)]
        return [await service.stats.of(one) for one in heaps]

    _show_stats(form, _look(where, config, sets, look))


@heap.command("peek")
def peek(
    where: Where,
    name: HeapName,
    limit: AtMost = 10,
    state: InState = MessageState.READY,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Look at messages without taking them, the best first."""
    _show_messages(form, _look(where, config, sets, lambda heaps: _peek(heaps, name, State[state.name], limit)))


@heap.command("purge")
def purge(
    where: Where,
    name: HeapName,
    leased: Annotated[bool, typer.Option("--leased", help="Also what consumers hold.")] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Also the dead letters.")] = False,
    yes: Yes = False,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Delete the messages that are in a heap now."""
    confirm(name, yes, f"delete the messages of the heap {name}", blind=True)

    async def empty(service: HeapService, by: AskedBy) -> int:
        return await service.dead_letters.purge(await service.admin.find(name), leased=leased, dead=dead, by=by)

    count = _change(where, config, sets, Action.PURGE_HEAP, name, empty)
    show(form, {"heap": name, "purged": count}, ("HEAP", "PURGED"), [(name, count)])


@dlq.command("list")
def list_letters(
    where: Where,
    name: HeapName,
    limit: AtMost = 100,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """The dead letters of a heap, the oldest first."""
    _show_messages(form, _look(where, config, sets, lambda heaps: _peek(heaps, name, State.DEAD, limit)))


@dlq.command("replay")
def replay(
    where: Where,
    name: HeapName,
    ids: LetterIds = None,
    everything: All = False,
    per_second: PerSecond = 0,
    keep_time: KeepTime = False,
    priority: NewPriority = None,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make dead letters ready again."""
    chosen = _chosen(ids, everything)

    async def again(service: HeapService, by: AskedBy) -> int:
        moved = await service.dead_letters.replay(
            await service.admin.find(name), chosen, keep_time=keep_time, priority=priority, per_second=per_second,
            dry_run=dry_run, by=by,
        )  # fmt: skip
        return moved.count

    if dry_run:
        count = _look(where, config, sets, lambda service: again(service, AskedBy()))
    else:
        count = _change(where, config, sets, Action.REPLAY, name, again)
    show(form, {"heap": name, "replayed": count, "dry_run": dry_run}, ("HEAP", "REPLAYED"), [(name, count)])
    tell_dry_run(dry_run, form)


@dlq.command("delete")
def delete_letters(
    where: Where,
    name: HeapName,
    ids: LetterIds = None,
    everything: All = False,
    yes: Yes = False,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Delete dead letters."""
    chosen = _chosen(ids, everything)
    what = "all dead letters" if chosen is None else f"{len(chosen)} dead letters"
    confirm(name, yes, f"delete {what} of the heap {name}", blind=True)

    async def drop(service: HeapService, by: AskedBy) -> int:
        return (await service.dead_letters.delete(await service.admin.find(name), chosen, by=by)).count

    count = _change(where, config, sets, Action.DROP, name, drop)
    show(form, {"heap": name, "deleted": count}, ("HEAP", "DELETED"), [(name, count)])


def _look(where: str, config: Path | None, sets: list[str] | None, work: Callable[[HeapService], Awaitable[T]]) -> T:
    return run_at(
        where, config, sets, lambda asked: look_at_heaps(asked.place, asked.open_objects, asked.effects, work)
    )


def _change(
    where: str,
    config: Path | None,
    sets: list[str] | None,
    action: Action,
    name: str,
    work: Callable[[HeapService, AskedBy], Awaitable[T]],
) -> T:
    return run_at(
        where,
        config,
        sets,
        lambda asked: change_heaps(asked.place, asked.root, asked.open_objects, asked.effects, action, name, work),
    )


async def _all(service: HeapService, prefix: str = "") -> list[Heap]:
    found: list[Heap] = []
    while page := await service.admin.page(prefix=prefix, after=found[-1].name if found else ""):
        found += page
    return found


async def _peek(service: HeapService, name: str, state: State, limit: int) -> list[PeekedMessage]:
    found: list[PeekedMessage] = []
    heap, token = await service.admin.find(name), ""
    while len(found) < limit:
        page = await service.peeking.page(heap, state, limit=min(MAX_PAGE, limit - len(found)), token=token)
        found += page.messages
        token = page.next_token
        if not token:
            break
    return found


def _with_configs(config: HeapConfig, texts: Sequence[str] | None) -> HeapConfig:
    changes = {
        _MILLISECONDS.get(key, key): value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
        for key, value in parse_heap_configs(texts, "--heap-config").items()
    }
    return msgspec.structs.replace(config, **changes)


def _chosen(ids: list[str] | None, everything: bool) -> list[MessageId] | None:
    """None: all of them."""
    names = chosen_letters(ids, everything)
    return None if names is None else [parse_id(one) for one in names]


def _span(ms: int) -> str:
    return format_duration(timedelta(milliseconds=ms))


def _show_heaps(form: TableFormat, found: Sequence[Heap]) -> None:
    heaps = [
        {"heap": one.name, "mode": one.mode.name.lower(), "partitions": one.partitions, "revision": one.revision,
         "lease_seconds": one.config.visibility_ms / 1_000, "max_retries": one.config.max_retries,
         "paused": one.config.paused}
        for one in found
    ]  # fmt: skip
    rows = [
        (one.name, one.mode.name.lower(), one.partitions, _span(one.config.visibility_ms), one.config.max_retries)
        for one in found
    ]
    show(form, {"heaps": heaps}, ("HEAP", "MODE", "PARTITIONS", "LEASE", "RETRIES"), rows)


def _show_stats(form: TableFormat, found: Sequence[HeapStats]) -> None:
    heaps = [
        {"heap": one.heap.name, "ready": one.backlog.ready, "delayed": one.backlog.delayed,
         "leased": one.backlog.leased, "dead": one.backlog.dead, "oldest_ready_seconds": one.oldest_ready_s,
         "enqueued": one.totals.enqueued, "acked": one.totals.acked, "failed": one.totals.failed,
         "lease_timeouts": one.totals.expired}
        for one in found
    ]  # fmt: skip
    rows = [
        (one.heap.name, one.backlog.ready, one.backlog.delayed, one.backlog.leased, one.backlog.dead,
         one.totals.enqueued, one.totals.acked)
        for one in found
    ]  # fmt: skip
    show(form, {"heaps": heaps}, ("HEAP", "READY", "DELAYED", "LEASED", "DEAD", "ENQUEUED", "ACKED"), rows)


def _show_messages(form: TableFormat, found: Sequence[PeekedMessage]) -> None:
    rows = [(format_id(one.id), one.row.priority, one.row.attempts, one.last_error, _payload(one)) for one in found]
    show(
        form, {"messages": [_document(one) for one in found]}, ("ID", "PRIORITY", "ATTEMPTS", "ERROR", "PAYLOAD"), rows
    )


def _document(one: PeekedMessage) -> Mapping[str, object]:
    return {
        "id": format_id(one.id),
        "state": one.state.name.lower(),
        "priority": one.row.priority,
        "attempts": one.row.attempts,
        "max_retries": one.row.max_retries,
        "enqueued": datetime.fromtimestamp(one.row.enqueued_ms / 1_000, UTC).isoformat(),
        "holder": one.holder,
        "error": one.last_error,
        "headers": {} if one.body is None else one.body.headers,
        "payload": _payload(one),
    }


def _payload(one: PeekedMessage) -> str | None:
    """None: it cannot be read now."""
    if one.body is None:
        return None
    if one.row.flags & JSON:
        return text_of(json.loads(one.body.payload))
    return text_of(one.body.payload)
