"""What a compactor says while it works and at its end, for people and for programs."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import typer

from dray.cli.compacting import run_to_the_end
from dray.cli.output import FAILURE, Format, refuse
from dray.cli.tables import Cell, TableFormat, facts, show
from dray.tables.options import (
    CompactorOptions,
    Compared,
    CycleDone,
    JobProgress,
    NothingDone,
    PartitionStatus,
    TableReached,
    TableRebuilt,
    TableStatus,
)

BAR: Final = 30
PARTITIONS: Final = ("PARTITION", "LOG START", "LOG END", "TABLE END", "LAG", "LAG BYTES", "LAG SECONDS", "TASK")


def run(options: CompactorOptions, form: TableFormat, program: str = "drayd") -> int:
    """Let a compactor work, and show what it says; its exit code."""
    code = FAILURE
    for said in run_to_the_end(options):
        match said:
            case JobProgress(done=done, total=total):
                _bar(done, total)
            case CycleDone():
                _summary(said, form)
            case TableStatus():
                _status(said, form)
            case Compared():
                _verified(said, form)
            case TableRebuilt():
                _rebuilt(said, form)
            case TableReached():
                _reached(said, form)
            case NothingDone():
                _bar(0, 0)
                refuse(
                    Format.JSON if form is TableFormat.JSON else Format.TEXT, [said.message], kind=said.kind,
                    then=said.next, program=program,
                )  # fmt: skip
            case int():
                code = said
    return code


def _bar(done: int, total: int) -> None:
    """On a terminal alone: how many of the tasks are done."""
    if not sys.stderr.isatty():
        return
    if not total:
        typer.echo("\r\033[K", err=True, nl=False)
        return
    filled = BAR * done // total
    typer.echo(f"\r[{'#' * filled}{' ' * (BAR - filled)}] {done} of {total} tasks", err=True, nl=False)


def _summary(summary: CycleDone, form: TableFormat) -> None:
    _bar(0, 0)
    document = {
        "topics": [msgspec.structs.asdict(topic) for topic in summary.topics], "failed": summary.failed,
        "seconds": summary.seconds,
    }  # fmt: skip
    if not summary.topics and form is TableFormat.TEXT:
        typer.echo("nothing was due")
        return
    rows = [
        (
            one.topic,
            one.partitions,
            one.records,
            one.bytes,
            one.files,
            one.file_bytes,
            one.rewritten,
            one.state,
            one.reason,
        )
        for one in summary.topics
    ]
    heading = (
        "TOPIC", "PARTITIONS", "RECORDS", "BYTES", "FILES", "FILE BYTES", "REWRITTEN", "STATE", "REASON",
    )  # fmt: skip
    show(form, document, heading, rows)


def _status(status: TableStatus, form: TableFormat) -> None:
    if form is TableFormat.TEXT:
        made = _time(status.snapshot_ms)
        facts(
            {
                "table": f"{status.catalog}.{status.table}",
                "state": status.state,
                "snapshot": f"{status.snapshot_id} of {made}" if status.snapshot_id else None,
                "snapshots": status.snapshots,
                "files": status.files,
                "rows": status.rows,
                "bytes": status.bytes,
                "metadata": status.metadata_location,
                "has all before": _time(status.committed_until_ms) if status.committed_until_ms else None,
            }
            | ({"foreign": ", ".join(status.foreign)} if status.foreign else {})
            | (
                {"problem": status.problem, "next": f"drayd admin table rebuild {status.topic}"}
                if status.problem
                else {}
            )
        )
        typer.echo()
    show(form, msgspec.to_builtins(status), PARTITIONS, _partition_rows(status.partitions))


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _partition_rows(partitions: Sequence[PartitionStatus]) -> list[Sequence[Cell]]:
    return [
        (
            one.partition,
            one.log_start,
            one.log_end,
            one.table_end,
            one.lag_records,
            one.lag_bytes,
            round(one.lag_seconds),
            one.task,
        )
        for one in partitions
    ]


def _rebuilt(done: TableRebuilt, form: TableFormat) -> None:
    if form is TableFormat.TEXT:
        typer.echo(f"the table shows what the log says: {done.added} files added, {done.removed} removed, "
                   f"{done.kept} were there")  # fmt: skip
        return
    show(
        form, msgspec.to_builtins(done), ("TOPIC", "ADDED", "REMOVED", "KEPT"),
        [(done.topic, done.added, done.removed, done.kept)],
    )  # fmt: skip


def _reached(found: TableReached, form: TableFormat) -> None:
    if form is TableFormat.TEXT:
        if found.reached:
            typer.echo("the table has all of it")
            return
        typer.echo(f"the table stands still: {found.problem}" if found.problem else "the table is not there yet")
    show(form, msgspec.to_builtins(found), PARTITIONS, _partition_rows(found.behind))


def _verified(found: Compared, form: TableFormat) -> None:
    _bar(0, 0)
    if form is TableFormat.TEXT:
        verdict = "table and log are equal" if found.equal else "table and log differ"
        typer.echo(f"{verdict}: {found.records} records in the log, {found.rows} rows in the table")
        if found.equal:
            return
    rows = [(one.partition, one.offset, one.what) for one in found.differences]
    show(form, msgspec.to_builtins(found), ("PARTITION", "OFFSET", "WHAT"), rows)
