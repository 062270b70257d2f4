"""What tables need besides new files: no Spark, so that a Spark that is down fills no disk.

Files whose rows the log has dropped leave the table by a DELETE snapshot. When
no snapshot that is kept reaches a file, the machine is told, and only then it
is garbage (X7). Tables of deleted topics go, or are renamed. Metadata that
nothing reaches is deleted.

Invariants
    CP6  A file is released only if no snapshot of its table reaches it, in a
         state whose head was committed after the machine said that no row names
         it: whoever staged it before can not commit any more.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from dray.errors import DrayError
from dray.machine.command import MAX_ROWS
from dray.machine.garbage import ReleaseFiles
from dray.machine.names import TopicId
from dray.machine.objects import StoredObject
from dray.machine.topics import Topic, TopicState
from dray.offload import Offload
from dray.pipeline.compactor import telemetry
from dray.pipeline.compactor.rebuild import kept_files
from dray.pipeline.compactor.standing import StandingTables
from dray.replica.replica import Replica
from dray.tables.errors import CatalogUnavailable
from dray.tables.table import CLUSTER_ID, TOPIC_ID, TableChange, TableOwner, TopicTables
from dray.telemetry import logger

SLICE: Final = 1_000
assert SLICE <= MAX_ROWS, "a command takes so many objects"


class Upkeep:
    """Keeps tables and garbage in step."""

    def __init__(
        self,
        replicas: Mapping[int, Replica],
        tables: TopicTables,
        offload: Offload,
        cluster_id: str,
        standing: StandingTables,
        *,
        keep: bool,
        keep_rows: bool = False,
    ) -> None:
        self._replicas = replicas
        self._tables = tables
        self._offload = offload
        self._cluster_id = cluster_id
        self._keep = keep
        self._keep_rows = keep_rows
        self._standing = standing

    async def run(self, now_ms: int) -> None:
        """Everything once; a table that fails hinders no other."""
        for replica in self._replicas.values():
            await replica.sync()
        await self._follow_deletions()
        await self._look()
        for topic_id, found in self._unneeded().items():
            if self._standing.stands(topic_id):
                continue
            try:
                await self._release(topic_id, found, now_ms)
            except DrayError as error:
                logger().warning(telemetry.FAILED, topic=topic_id.hex(), reason=str(error))
        for topic in self._topics():
            if self._standing.stands(topic.id):
                continue
            try:
                await self._offload.run(self._clean, self._named(topic), now_ms)
            except DrayError as error:
                logger().warning(telemetry.FAILED, topic=topic.name, reason=str(error))

    async def _look(self) -> None:
        """At every table: one that nothing is written to may have been changed, or dropped, all the same."""
        for topic in self._topics():
            try:
                await self._standing.check(topic)
            except DrayError as error:
                logger().warning(telemetry.FAILED, topic=topic.name, reason=str(error))

    def _topics(self) -> list[Topic]:
        return [topic for topic in self._replicas[0].machine.topics.visible() if topic.state is TopicState.READY]

    def _named(self, topic: Topic) -> TableOwner:
        return TableOwner(name=topic.name, topic_id=topic.id, cluster_id=self._cluster_id)

    def _unneeded(self) -> dict[TopicId, list[tuple[Replica, StoredObject]]]:
        """Files that only a table may name, by topic."""
        found: dict[TopicId, list[tuple[Replica, StoredObject]]] = defaultdict(list)
        topics = self._replicas[0].machine.topics
        for replica in self._replicas.values():
            kept = kept_files(replica.machine) if self._keep_rows else frozenset()
            for number in replica.machine.objects.only_in_table():
                owner = replica.machine.objects.find(number)
                if owner is None or owner.file is None:
                    continue
                if number not in kept or topics.find(owner.file.topic_id) is None:
                    found[owner.file.topic_id].append((replica, owner))
        return found

    async def _release(self, topic_id: TopicId, found: Sequence[tuple[Replica, StoredObject]], now_ms: int) -> None:
        topic = self._replicas[0].machine.topics.find(topic_id)
        if topic is not None and topic.state is not TopicState.READY:
            return  # it is being deleted: its table goes first
        if topic is None and self._keep:
            return  # the table that was kept owns them
        address = self._tables.store.address
        reached: frozenset[str] = frozenset()
        if topic is not None:
            locations = [f"{address}/{owner.path()}" for _, owner in found]
            reached = await self._offload.run(self._take_out, self._named(topic), locations, now_ms)
        free = [(replica, owner) for replica, owner in found if f"{address}/{owner.path()}" not in reached]  # CP6
        by_replica: dict[int, list[StoredObject]] = defaultdict(list)
        for replica, owner in free:
            by_replica[replica.machine.domain].append(owner)
        for domain, owners in by_replica.items():
            for at in range(0, len(owners), SLICE):
                numbers = tuple(owner.id for owner in owners[at : at + SLICE])
                await self._replicas[domain].propose(ReleaseFiles(objects=numbers))
        if free:
            logger().info(telemetry.RELEASED, topic=topic_id.hex() if topic is None else topic.name, files=len(free))

    def _take_out(self, topic: TableOwner, locations: Sequence[str], now_ms: int) -> frozenset[str]:
        """Take files out of a table; what its snapshots reach then."""
        table = self._tables.find(topic)
        if table is None:
            return frozenset()
        seen = table.metadata.current_snapshot_id
        self._tables.commit(topic, TableChange(removed=locations), now_ms)
        reached = self._reached(topic)
        if not reached.issuperset(locations) and seen == self._head(topic):
            self._tables.commit(topic, TableChange(seal=True), now_ms)  # CP6
            reached = self._reached(topic)
        return reached

    def _head(self, topic: TableOwner) -> int | None:
        table = self._tables.find(topic)
        return None if table is None else table.metadata.current_snapshot_id

    def _reached(self, topic: TableOwner) -> frozenset[str]:
        table = self._tables.find(topic)
        return frozenset() if table is None else self._tables.reached(table).data

    def _clean(self, topic: TableOwner, now_ms: int) -> None:
        if self._tables.find(topic) is None:
            return
        self._tables.commit(topic, TableChange(), now_ms)  # snapshots expire, whether or not records come
        table = self._tables.find(topic)
        if table is not None:
            self._tables.clean(table)

    async def _follow_deletions(self) -> None:
        known = frozenset(topic_id.hex() for topic_id in self._replicas[0].machine.topics.all)
        try:
            gone = await self._offload.run(self._orphaned, known)
        except DrayError as error:
            logger().warning(telemetry.FAILED, topic="", reason=str(error))
            return
        for name, kept in gone:
            logger().info(telemetry.DROPPED, table=name, kept=kept)

    def _orphaned(self, live: frozenset[str]) -> list[tuple[str, str]]:
        """Drop or rename the tables of topics that are no more; their names, and what they are called now."""
        catalog, done = self._tables.catalog, []
        try:
            identifiers = catalog.list_tables(self._tables.namespace)
        except NoSuchNamespaceError:
            return []
        except Exception as error:
            raise CatalogUnavailable("the catalog does not answer", reason=str(error)[:300]) from error
        for identifier in identifiers:
            try:
                table = catalog.load_table(identifier)
            except NoSuchTableError:
                continue
            if self._is_orphan(table, live):
                kept = f"{identifier[-1]}-{table.properties[TOPIC_ID]}"[:255] if self._keep else ""
                if not self._keep:
                    catalog.drop_table(identifier)
                elif not str(identifier[-1]).endswith(table.properties[TOPIC_ID]):
                    catalog.rename_table(identifier, (self._tables.namespace, kept))
                else:
                    continue
                done.append((".".join(identifier), kept))
        return done

    def _is_orphan(self, table: Table, live: frozenset[str]) -> bool:
        topic_id = table.properties.get(TOPIC_ID)
        return table.properties.get(CLUSTER_ID) == self._cluster_id and topic_id is not None and topic_id not in live
