"""The process of a compactor: `python -m dray.pipeline.compactor`, told what to do on its standard input.

It follows the log beside brokers, or opens it where none runs, and works
until it is told to end, its parent is gone, or, if told so, nothing is due any
more. Standard output has JSON lines for the parent; standard error is a log.

Exit codes: 0 done, 1 failed or something was left, 2 wrong settings.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import DrayError, Invalid, Kind, NotFound
from dray.ids import SystemEntropy
from dray.log.urls import SharedLogs, parse_log_url
from dray.machine.head import SUPPORTED
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster, Reached, reach
from dray.node.visiting import OpenObjects, cluster_place, open_beside
from dray.objects.cluster import bound_to
from dray.offload import InlineOffload, ThreadOffload
from dray.pipeline.compactor import telemetry
from dray.pipeline.compactor.answering import TableAnswers
from dray.pipeline.compactor.cycle import Compactor, TopicTally
from dray.pipeline.compactor.rebuild import Rebuilder
from dray.pipeline.compactor.saga import Saga
from dray.pipeline.compactor.spark import SparkJobs
from dray.pipeline.compactor.standing import StandingTables
from dray.pipeline.compactor.status import topic_of
from dray.pipeline.compactor.upkeep import Upkeep
from dray.pipeline.opening import read_directory
from dray.replica.replica import Replica
from dray.tables.catalog import open_catalog
from dray.tables.due import ROWS_VERSION, DueRules
from dray.tables.io import bound_store
from dray.tables.options import CompactorOptions, CycleDone, JobProgress, NothingDone, Said
from dray.tables.places import place_of
from dray.tables.rewrites import RewriteRules
from dray.tables.table import TopicTables
from dray.telemetry import configure_logging, logger

UPKEEP_S: Final = 600
TELL_S: Final = 0.5
"""How often progress is told."""
PAUSES_S: Final = (1.0, 5.0, 30.0)
"""After cycles that failed; the last one is repeated."""
NAME: Final = "compactor"


class OldRules(Invalid):
    """The log is folded by rules that know no tables."""

    advice = "run: drayd admin meta activate DIR"


class Process:
    """A compactor, from its start to its end."""

    def __init__(self, options: CompactorOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._entropy = SystemEntropy()
        self._offload = ThreadOffload(4, NAME)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> int:
        """Work; returns the exit code."""
        async with AsyncExitStack() as stack:
            effects = Effects(clock=self._clock, entropy=self._entropy, disk=LocalDisk(), offload=InlineOffload())
            place = self._cluster(effects)
            reached = await stack.enter_async_context(reach(place, effects))
            address = self._options.store.url or str(DataDirectory(Path(self._options.data)).objects)
            open_objects = partial(open_beside, address, self._options.store, effects)
            objects = await open_objects()
            stack.push_async_callback(objects.close)
            cluster_id = reached.cluster_id
            if await bound_to(objects) != cluster_id:
                raise NotFound("this is not the store of the cluster: set objects.url", store=address)
            tables = self._tables(stack, address, open_objects) if self._options.tables else None
            replicas = await self._follow(stack, reached, effects)
            os.environ.update(self._options.store.environment())  # noqa: TID251 - for Spark's workers
            spark = SparkJobs(place_of(address), self._options.master, self._clock)
            rebuilder, standing = self._mending(replicas, tables, cluster_id)
            compactor = Compactor(
                replicas, Saga(replicas, objects, tables=tables is not None), tables, spark, self._rules(), self._clock,
                self._offload, self._options.cycle_size, cluster_id, self._rewriting(),
                standing, rebuilder,
            )  # fmt: skip
            upkeep = (
                None
                if tables is None or standing is None
                else Upkeep(
                    replicas, tables, self._offload, cluster_id, standing, keep=self._options.keep_tables,
                    keep_rows=self._options.keep_rows,
                )
            )  # fmt: skip
            if self._options.ask is not None:
                if tables is None or standing is None or rebuilder is None:
                    raise Invalid("there are no tables: table.enabled is off")
                answering = TableAnswers(
                    self._options, replicas, tables, spark, standing, rebuilder, self._offload, self._clock,
                    cluster_id,
                )  # fmt: skip
                said, code = await answering.answer(self._stop)
                _say(said)
                return code
            if self._options.once:
                return await self._once(compactor, upkeep, spark, replicas)
            return await self._work(compactor, upkeep, spark, replicas)

    # -- what it stands on ---------------------------------------------------

    def _cluster(self, effects: Effects) -> DirectoryOrCluster:
        """Where the log is: in a data directory, or shared by brokers of several machines."""
        if self._options.log is None:
            return read_directory(self._options.data)[0]
        log = parse_log_url(self._options.log)
        assert isinstance(log, SharedLogs), "whoever starts a compactor has looked"
        return cluster_place(log, self._options.store, effects)

    async def _follow(self, stack: AsyncExitStack, reached: Reached, effects: Effects) -> dict[int, Replica]:
        replicas = {}
        for domain in reached.domains(effects):
            replica = await stack.enter_async_context(reached.following(domain, NAME, effects))
            stack.push_async_callback(_give_back, replica)
            if replica.machine.version < ROWS_VERSION:
                await replica.sync()
            if replica.machine.version < ROWS_VERSION:
                raise OldRules(
                    "tables need newer rules than this log has", version=replica.machine.version, newest=SUPPORTED
                )
            replica.failed.add_done_callback(lambda _: self.stop())
            replicas[domain] = replica
        return replicas

    def _tables(self, stack: AsyncExitStack, address: str, open_objects: OpenObjects) -> TopicTables:
        store = stack.enter_context(bound_store(place_of(address), open_objects))
        directory = Path(self._options.data) if self._options.log is None else None
        catalog = open_catalog(self._options.catalog, directory, store)
        return TopicTables(catalog, store, self._entropy, namespace=self._options.namespace)

    def _rules(self) -> DueRules:
        return DueRules(age_ms=self._options.age_ms, size=self._options.size, file_size=self._options.file_size)

    def _mending(
        self, replicas: Mapping[int, Replica], tables: TopicTables | None, cluster_id: str
    ) -> tuple[Rebuilder | None, StandingTables | None]:
        if tables is None:
            return None, None
        rebuilder = Rebuilder(replicas, tables, self._offload, self._entropy, cluster_id, keep=self._options.keep_rows)
        return rebuilder, StandingTables(replicas, tables, self._offload, self._clock, cluster_id, rebuilder)

    def _rewriting(self) -> RewriteRules:
        return RewriteRules(
            files=self._options.small_files,
            file_size=self._options.file_size,
            settled_ms=self._options.settled_ms,
            tables=self._options.tables,
        )

    # -- what it does --------------------------------------------------------

    async def _once(
        self, compactor: Compactor, upkeep: Upkeep | None, spark: SparkJobs, replicas: Mapping[int, Replica]
    ) -> int:
        began_ns = self._clock.boot_ns()
        if self._options.topic is not None:
            await replicas[0].sync()  # that there is none is said after it
            topic_of(replicas, self._options.topic)
        async with self._telling(spark):
            tallies = await self._interruptible(compactor.run(self._options.topic), replicas)
        if tallies is None:
            return 1
        if upkeep is not None:
            await upkeep.run(self._now_ms(replicas))
        topics = [tally.told(topic) for topic, tally in sorted(tallies.items())]
        failed = sum(topic.state == "failed" for topic in topics)
        seconds = (self._clock.boot_ns() - began_ns) / 1e9
        _say(CycleDone(topics=topics, failed=failed, seconds=round(seconds, 3)))
        return 1 if failed else 0

    async def _work(
        self, compactor: Compactor, upkeep: Upkeep | None, spark: SparkJobs, replicas: Mapping[int, Replica]
    ) -> int:
        failures, kept_ns = 0, 0
        while not self._stop.is_set():
            try:
                tallies = await self._interruptible(compactor.run(), replicas)
                if tallies is None:
                    break
                failures = failures + 1 if any(tally.failures for tally in tallies.values()) else 0
                _log(tallies)
                if upkeep is not None and self._clock.boot_ns() - kept_ns > UPKEEP_S * 1_000_000_000:
                    await upkeep.run(self._now_ms(replicas))
                    kept_ns = self._clock.boot_ns()
            except DrayError as error:
                _check_alive(replicas)
                failures += 1
                logger().warning(telemetry.FAILED, topic="", reason=str(error))
            if spark.idle_s() > self._options.idle_s:
                if spark.runs:
                    await self._offload.run(spark.stop)
                if self._options.leave_when_idle and not failures:
                    break
            await self._pause(PAUSES_S[min(failures, len(PAUSES_S)) - 1] if failures else 0)
        return 0

    async def _pause(self, at_least_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(self._options.look_s, at_least_s)):
                await self._stop.wait()

    async def _interruptible(
        self, work: Coroutine[None, None, dict[str, TopicTally]], replicas: Mapping[int, Replica]
    ) -> dict[str, TopicTally] | None:
        """Until it is done, told to stop, or a replica has stopped; a task that is left is taken over later."""
        running = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if running.done():
            return running.result()
        running.cancel()
        with suppress(asyncio.CancelledError, DrayError):
            await running
        _check_alive(replicas)
        return None

    @asynccontextmanager
    async def _telling(self, spark: SparkJobs) -> AsyncIterator[None]:
        async def tell() -> None:
            while True:
                await asyncio.sleep(TELL_S)
                done, total = await self._offload.run(spark.progress)
                if total:
                    _say(JobProgress(done=done, total=total))

        telling = asyncio.create_task(tell())
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    def _now_ms(self, replicas: Mapping[int, Replica]) -> int:
        return min(self._clock.wall_ms(), replicas[0].machine.timeline.time_ms)


def _check_alive(replicas: Mapping[int, Replica]) -> None:
    """Raise what has stopped a replica for good."""
    for replica in replicas.values():
        if replica.failed.done():
            raise replica.failed.result()


async def _give_back(replica: Replica) -> None:
    """So that whoever comes next need not wait until our session has expired."""
    with suppress(TimeoutError, DrayError):
        async with asyncio.timeout(5):
            await replica.close_session()


def _say(what: Said) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
        sys.stdout.buffer.flush()


def _log(tallies: Mapping[str, TopicTally]) -> None:
    done = {topic: tally for topic, tally in tallies.items() if tally.files}
    if done:
        logger().info(
            telemetry.CYCLE, topics=len(done), records=sum(tally.records for tally in done.values()),
            bytes=sum(tally.bytes for tally in done.values()), files=sum(tally.files for tally in done.values()),
        )  # fmt: skip


async def serve(options: CompactorOptions) -> int:
    process = Process(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.stop)
    parent = asyncio.create_task(_until_orphaned())
    parent.add_done_callback(lambda _: process.stop())
    try:
        return await process.run()
    except DrayError as error:
        _say(NothingDone(kind=error.kind.name.lower(), message=str(error), next=error.advice or error.kind.value))
        return 2 if error.kind is Kind.INVALID else 1
    finally:
        parent.cancel()


async def _until_orphaned() -> None:
    """Until standard input ends: whoever started this process holds its other end, also if it is killed."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


def main() -> None:
    # Not by the buffered reader: what comes behind the line, the end, is the loop's.
    options = msgspec.json.decode(_first_line(), type=CompactorOptions)
    configure_logging(options.log_level, form=options.log_form)
    code = asyncio.run(serve(options))
    sys.stdout.flush()
    os._exit(code)  # a thread may still be inside Spark, and everything that matters is in the log


def _first_line() -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        read = os.read(0, 1)
        if not read:
            break
        line += read
    return bytes(line)


if __name__ == "__main__":
    main()
