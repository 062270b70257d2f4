"""`dray.read`: a topic as a `pyarrow.Table`, without Spark.

It is the read of `spark.read.format("dray")` in one process: the same options,
the same cut, files and WAL objects alike, the same columns. What is held for
it is let go when it is done.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, fspath
from typing import Final

import pyarrow as pa

from dray.pipeline.errors import BadOption
from dray.pipeline.options import parse_options
from dray.pipeline.reading import FIELDS, PLAIN_SCHEMA, read_pieces
from dray.pipeline.remote import end_plan, plan_for

PIN_SECONDS: Final = 3_600
"""How long objects are kept for a read that is killed, unless it says otherwise."""


def read(
    topics: str | Iterable[str],
    source: str | PathLike[str] = "dray-data",
    *,
    columns: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
) -> pa.Table:
    """Every record of one topic or several that was acknowledged before this call, as a table in memory.

    `source` is a data directory, or the URL of a broker's HTTP port. `columns` names those that are wanted, `headers`
    among them; without it they are key, value, topic, partition, offset, timestamp and timestampType. `options` are
    those of `spark.read.format("dray")`: offsets, times, `includeHeaders`, `objects` ... Rows of a partition are in
    order.

    Raises:
        BadOption, NoSuchTopic, DataLoss, NotPinned, NotRead, BrokenObject: as the source of Spark does.
    """
    names = topics if isinstance(topics, str) else ",".join(topics)
    given = {"subscribe": names, "pinSeconds": str(PIN_SECONDS)} | _texts(options or {})
    given |= {"path": fspath(source)}
    with ThreadPoolExecutor(1) as thread:  # a notebook has a loop in this one
        return thread.submit(_read, given, columns).result()


def _read(given: Mapping[str, str], columns: Sequence[str] | None) -> pa.Table:
    parsed = parse_options(given)
    wanted = _columns(columns, include_headers=parsed.include_headers)
    plan = plan_for(parsed, shared=False)
    try:
        batches = [batch for pieces in plan.tasks for batch in read_pieces(plan.address, pieces, wanted)]
    finally:
        end_plan(parsed, plan)
    return pa.Table.from_batches(batches, pa.schema([FIELDS[name] for name in wanted]))


def _columns(given: Sequence[str] | None, *, include_headers: bool) -> tuple[str, ...]:
    if given is None:
        return (*PLAIN_SCHEMA.names, *(("headers",) if include_headers else ()))
    wrong = [name for name in given if name not in FIELDS]
    if wrong or not given or len(set(given)) < len(given) or isinstance(given, str):
        raise BadOption(
            "columns names each of them once, and one at least", given=", ".join(given), known=", ".join(FIELDS)
        )
    return tuple(given)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    """As Spark gives them; `True` is `true` there."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
