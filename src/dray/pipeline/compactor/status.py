"""The table of a topic and how far it is behind the log, told by the machine and the catalog; Spark is not needed."""

from collections.abc import Mapping

from dray.errors import NotFound
from dray.machine.names import domain_of
from dray.machine.topics import Topic, TopicState
from dray.pipeline.compactor.standing import PROBLEMS
from dray.replica.replica import Replica
from dray.tables import fence
from dray.tables.due import backlog
from dray.tables.options import PartitionStatus, TableStatus
from dray.tables.snapshots import check_foreign, describe, strangers, totals, until_of
from dray.tables.table import TableOwner, TopicTables


class NoTopic(NotFound):
    """There is no such topic."""


def topic_of(replicas: Mapping[int, Replica], name: str) -> Topic:
    """The topic of a name; `NoTopic` if there is none."""
    found = replicas[0].machine.topics.named(name)
    if found is None or found.state is not TopicState.READY:
        raise NoTopic("no such topic", topic=name)
    return found


def status_of(replicas: Mapping[int, Replica], tables: TopicTables, topic: Topic, cluster_id: str) -> TableStatus:
    """Blocks: the catalog is asked."""
    mark = replicas[0].machine.table_marks.find(topic.id)
    problem = "" if mark is None else mark.problem
    table, others = None, []
    snapshot, snapshots = None, []
    ends: dict[int, int] = {}
    try:
        table = tables.find(TableOwner(name=topic.name, topic_id=topic.id, cluster_id=cluster_id))
        if table is not None:
            snapshot, snapshots = table.current_snapshot(), table.metadata.snapshots
            others = [describe(one) for one in strangers(table.metadata)]
            ends = fence.parse(table.properties.get(fence.PROPERTY))
            check_foreign(table.metadata, table.io)
    except PROBLEMS as error:
        problem = str(error)
    files, rows, size = totals(snapshot)
    return TableStatus(
        topic=topic.name, table=".".join(tables.identifier(topic.name)), catalog=tables.catalog.name,
        metadata_location="" if table is None else table.metadata_location,
        snapshot_id=0 if snapshot is None else snapshot.snapshot_id,
        snapshot_ms=0 if snapshot is None else snapshot.timestamp_ms, snapshots=len(snapshots), files=files, rows=rows,
        bytes=size, state="foreign" if others or problem else "none" if table is None else "ok", foreign=others,
        problem=problem, problem_since_ms=0 if mark is None else mark.since_ms,
        committed_until_ms=0 if table is None else until_of(table.metadata),
        partitions=_partitions(replicas, topic, ends),
    )  # fmt: skip


def _partitions(replicas: Mapping[int, Replica], topic: Topic, ends: Mapping[int, int]) -> list[PartitionStatus]:
    found = []
    for number in topic.streams[: topic.visible]:
        machine = replicas[domain_of(number)].machine
        stream = machine.streams.find(number)
        if stream is None:
            continue
        _, size, age_ms = backlog(machine, stream)
        task = machine.tasks.find(number)
        end = ends.get(stream.partition, stream.start)
        found.append(
            PartitionStatus(
                partition=stream.partition, log_start=stream.start, log_end=stream.end, table_end=end,
                lag_records=stream.end - max(end, stream.start), lag_bytes=size, lag_seconds=age_ms / 1000,
                task="" if task is None else task.state.name,
            )
        )  # fmt: skip
    return found
