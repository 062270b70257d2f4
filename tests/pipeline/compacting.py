"""A compactor for tests: the real one, on the log of a running broker; only Spark may be left out.

As a process, `python -m tests.pipeline.compacting DIRECTORY STEP TOPIC`, it kills itself when it comes to that step:
before or after each effect, as `before:Swap` or `after:commit`. With `stop` as a fourth word it falls asleep there
instead, until somebody continues it, and then goes on with its cycle as if nothing had happened.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.machine.command import Command
from dray.machine.names import domain_of
from dray.machine.verdict import Verdict
from dray.node.reaching import reach
from dray.objects.files import FileObjects
from dray.offload import InlineOffload, ThreadOffload
from dray.pipeline.compactor.cycle import Compactor, TopicTally
from dray.pipeline.compactor.rebuild import Rebuilder, files_of_rows
from dray.pipeline.compactor.saga import Saga
from dray.pipeline.compactor.standing import StandingTables
from dray.pipeline.compactor.upkeep import Upkeep
from dray.pipeline.compactor.worker import FileJob, JobOutcome, write_files
from dray.pipeline.opening import effects, read_directory
from dray.replica.replica import Replica
from dray.tables.catalog import open_catalog
from dray.tables.due import DueRules
from dray.tables.io import bound_store
from dray.tables.rewrites import RewriteRules
from dray.tables.table import TableOwner, TopicTables
from tests.pipeline.parts import Row

ALL = DueRules(age_ms=0, size=0, file_size=128 << 20)
STEPS = ("CreateTask", "files", "FilesWritten", "commit", "send", "TableCommitted", "Swap", "FinishTask")
"""`commit` is a change of a table, with its looks at it; `send` the one call of the catalog in it."""


def without_spark(address: str) -> Callable[[Sequence[FileJob]], list[JobOutcome]]:
    """What tasks of Spark would do, in this process."""

    def run(jobs: Sequence[FileJob]) -> list[JobOutcome]:
        return list(write_files(address, jobs, 0))

    return run


@dataclass
class Running:
    """A compactor that follows the log."""

    compactor: Compactor
    tables: TopicTables
    replicas: dict[int, Replica]
    upkeep: Upkeep
    cluster_id: str
    standing: StandingTables
    rebuilder: Rebuilder

    async def cycle(self, topic: str | None = None) -> dict[str, TopicTally]:
        return await self.compactor.run(topic)

    def topic(self, name: str) -> TableOwner:
        found = self.replicas[0].machine.topics.named(name)
        assert found is not None
        return TableOwner(name=name, topic_id=found.id, cluster_id=self.cluster_id)

    def files(self, name: str) -> list[list[str]]:
        """Of each partition, the names of the files that its rows in the index lead to, in their order."""
        catalog, found = self.replicas[0].machine, []
        topic = catalog.topics.named(name)
        assert topic is not None
        for number in topic.streams:
            machine = self.replicas[domain_of(number)].machine
            stream = machine.streams.find(number)
            owners = [machine.objects.find(one) for one in files_of_rows(machine, stream)]
            found.append([owner.path() for owner in owners])
        return found

    def rows(self, name: str) -> list[Row]:
        """Every row of a topic's table, as a consumer would have it, read by PyIceberg."""
        table = self.tables.find(self.topic(name))
        return [] if table is None else sorted(rows_of(name, table.scan().to_arrow()))


def rows_of(topic: str, table: pa.Table) -> list[Row]:
    stamps = table.column("timestamp").cast(pa.int64()).to_pylist()
    return [
        Row(
            topic, found["partition"], found["offset"], found["key"], found["value"], stamp // 1000,
            found["attributes"] >> 3 & 1,
            tuple((header["key"], header["value"]) for header in found["headers"]) or None,
        )
        for found, stamp in zip(table.to_pylist(), stamps, strict=True)
    ]  # fmt: skip


@asynccontextmanager
async def compactor(
    directory: Path,
    run_jobs=None,
    rules: DueRules = ALL,
    *,
    keep: bool = False,
    catalog: str = "sqlite",
    rewriting: RewriteRules | None = None,
    keep_rows: bool = False,
) -> AsyncIterator[Running]:
    """One on the log of a directory, beside its broker or with none."""
    found, identity = read_directory(str(directory))
    address = f"file://{found.objects}"

    async def objects() -> FileObjects:
        return FileObjects(found.objects, LocalDisk(), InlineOffload())

    async with AsyncExitStack() as stack:
        reached = await stack.enter_async_context(reach(found, effects()))
        replicas = {}
        for domain in found.domains(LocalDisk()):
            replica = await stack.enter_async_context(reached.following(domain, "compactor", effects()))
            stack.push_async_callback(replica.close_session)
            replicas[domain] = replica
        store = stack.enter_context(bound_store(address, objects))
        tables = TopicTables(open_catalog(catalog, found.root, store), store, SystemEntropy())
        offload = ThreadOffload(4)
        rebuilder = Rebuilder(replicas, tables, offload, SystemEntropy(), identity.cluster_id, keep=keep_rows)
        standing = StandingTables(replicas, tables, offload, SystemClock(), identity.cluster_id, rebuilder)
        made = Compactor(
            replicas, Saga(replicas, await objects(), tables=True), tables, run_jobs or without_spark(address), rules,
            SystemClock(), offload, 1 << 40, identity.cluster_id, rewriting, standing, rebuilder,
        )  # fmt: skip
        upkeep = Upkeep(replicas, tables, offload, identity.cluster_id, standing, keep=keep, keep_rows=keep_rows)
        yield Running(made, tables, replicas, upkeep, identity.cluster_id, standing, rebuilder)


class Died(BaseException):
    """Stands for the end of a process, where that would be dear."""


def die_indeed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_once() -> Callable[[], None]:
    """Stops the whole process, the first time it is called."""
    numbers = [signal.SIGSTOP]
    return lambda: os.kill(os.getpid(), numbers.pop()) if numbers else None


def arm(running: Running, step: str, die: Callable[[], None]) -> None:
    """Come to an end before or after an effect."""
    when, _, what = step.partition(":")

    def around(name: str, function):
        def call(*arguments):
            if (when, what) == ("before", name):
                die()
            result = function(*arguments)
            if (when, what) == ("after", name):
                die()
            return result

        return call

    running.compactor._run_jobs = around("files", running.compactor._run_jobs)
    running.tables.commit = around("commit", running.tables.commit)
    running.tables.catalog.commit_table = around("send", running.tables.catalog.commit_table)
    for replica in running.replicas.values():
        replica.propose = _dying(replica.propose, when, what, die)


def _dying(propose, when: str, what: str, die: Callable[[], None]):
    async def call(*commands: Command) -> list[Verdict]:
        meant = any(type(command).__name__ == what for command in commands)
        if meant and when == "before":
            die()
        verdicts = await propose(*commands)
        if meant and when == "after":
            die()
        return verdicts

    return call


async def main(directory: str, step: str, topic: str, what: str = "die") -> None:
    async with compactor(Path(directory)) as running:
        arm(running, step, sleep_once() if what == "stop" else die_indeed)
        await running.cycle(topic)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
