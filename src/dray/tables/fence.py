"""The table fences itself: how far each partition is in it, as a property of the table.

`dray.next-offsets` changes in the very commit that adds the files. Every
attempt loads the table, judges its ranges here, and commits against that base
alone; so a writer that slept, or that does not know whether it has committed,
can double no row.

Invariants
    TF1  A range is added only to a table whose partition ends at its start, or
         before it where the log has dropped what lies between.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.tables.errors import RowsThere, TableBehind, TableChanged

PROPERTY: Final = "dray.next-offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets of one partition that are to be in the table."""

    partition: int
    start: int
    end: int
    floor: int
    """Where the log starts: what lies below is in no table any more, or never was."""


class FenceState(Enum):
    """How a table stands to a range."""

    FRESH = "it can be added"
    THERE = "rows up to its end are there already; whose, their files tell"


def parse(text: str | None) -> dict[int, int]:
    """How far each partition is.

    Raises:
        TableChanged: somebody else has written the property.
    """
    try:
        found = json.loads(text or "{}")
        return {int(partition): int(end) for partition, end in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise TableChanged("a property of the table cannot be read", property=PROPERTY) from error


def dump(ends: Mapping[int, int]) -> str:
    return json.dumps({str(partition): end for partition, end in sorted(ends.items())}, separators=(",", ":"))


def dump_ranges(ranges: Mapping[str, Sequence[int]]) -> str:
    return json.dumps(ranges, separators=(",", ":"))


def judge(ends: Mapping[int, int], wanted: Range) -> FenceState:
    """Whether a range can be added (TF1).

    Raises:
        RowsThere: a part of it is there, by another cut.
        TableBehind: rows before it are missing.
    """
    end = ends.get(wanted.partition)
    if end is not None and end >= wanted.end:
        return FenceState.THERE
    if end is not None and end > wanted.start:
        raise RowsThere(
            "the table has a part of these rows already", partition=wanted.partition, start=wanted.start,
            end=wanted.end, table_has=end,
        )  # fmt: skip
    if end != wanted.start and wanted.start > wanted.floor:
        raise TableBehind(
            "rows before these are missing from the table: it was dropped or set back", partition=wanted.partition,
            start=wanted.start, table_has=0 if end is None else end,
        )  # fmt: skip
    return FenceState.FRESH
