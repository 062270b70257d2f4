"""Dead letters of heaps: list, replay and delete them."""

from typing import Final

import typer

from dray.cli.asking._connecting import DryRun, Yes, confirm, tell_dry_run
from dray.cli.asking._heaping import GrpcEndpoint, HeapName, ask_heaps
from dray.cli.asking.heap import show_messages
from dray.cli.heap_forms import All, AtMost, KeepTime, LetterIds, NewPriority, PerSecond, chosen_letters
from dray.cli.tables import TableFormat, TableOption, show

app: Final = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_command(
    heap: HeapName,
    limit: AtMost = 100,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """The dead letters of a heap, the oldest first."""
    show_messages(form, ask_heaps(endpoint, lambda client: client.heap(heap).dlq.list(limit)))


@app.command("replay")
def replay_command(
    heap: HeapName,
    ids: LetterIds = None,
    everything: All = False,
    per_second: PerSecond = 0,
    keep_time: KeepTime = False,
    priority: NewPriority = None,
    dry_run: DryRun = False,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make dead letters ready again."""
    chosen = chosen_letters(ids, everything)
    count = ask_heaps(
        endpoint,
        lambda client: client.heap(heap).dlq.replay(
            chosen, per_second=per_second, keep_time=keep_time, priority=priority, dry_run=dry_run
        ),
    )
    show(form, {"heap": heap, "replayed": count, "dry_run": dry_run}, ("HEAP", "REPLAYED"), [(heap, count)])
    tell_dry_run(dry_run, form)


@app.command("delete")
def delete_command(
    heap: HeapName,
    ids: LetterIds = None,
    everything: All = False,
    yes: Yes = False,
    endpoint: GrpcEndpoint = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Delete dead letters."""
    chosen = chosen_letters(ids, everything)
    what = "all dead letters" if chosen is None else f"{len(chosen)} dead letters"
    confirm(heap, yes, f"delete {what} of the heap {heap}", blind=True)
    count = ask_heaps(endpoint, lambda client: client.heap(heap).dlq.delete(chosen))
    show(form, {"heap": heap, "deleted": count}, ("HEAP", "DELETED"), [(heap, count)])
