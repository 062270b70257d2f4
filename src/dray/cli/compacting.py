"""The compactor as a process of its own: Spark and Arrow are never loaded here.

What it is to do goes to its standard input, which is then held open: it ends
when that ends, so it never outlives this process, however that ends.
"""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from dray.cli import telemetry
from dray.cli.serving import Running, as_broker, ready_line
from dray.cli.settings import LoggingSettings
from dray.clock import Clock, SystemClock
from dray.config import Config
from dray.errors import Invalid, NotFound
from dray.log.settings import LogSettings
from dray.log.urls import MemoryLogs, ServedLogs, SharedLogs
from dray.node.roles.broker import RunningBroker, run_broker
from dray.node.settings import BrokerSettings
from dray.node.store import store_of
from dray.objects.settings import ObjectsSettings
from dray.tables.due import DueRules, look_for_due
from dray.tables.options import CompactorOptions, Said
from dray.tables.settings import CompactionSettings, TableSettings
from dray.telemetry import logger

COMMAND: Final = (sys.executable, "-m", "dray.pipeline.compactor")
NEEDED: Final = ("pyspark", "pyiceberg")
END_S: Final = 10.0
TOGETHER: Final = 256
"""Streams that are looked at before somebody else has a turn."""
PAUSES_S: Final = (5.0, 30.0, 120.0)
"""After a compactor that failed; the last one is repeated."""


class NoSpark(NotFound):
    """The packages of the extra `spark` are not installed."""

    advice = "pip install 'dray[spark]'"


def check_installed() -> None:
    """Raise unless a compactor can run here."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise NoSpark("tables need the extra `spark`", missing=", ".join(missing))


def options_of(config: Config) -> CompactorOptions:
    """What a compactor of this configuration is told."""
    table, compaction = config.get(TableSettings), config.get(CompactionSettings)
    logging = config.get(LoggingSettings)
    data, log = _place(config)
    return CompactorOptions(
        data=str(data), log=log, store=store_of(config.get(ObjectsSettings)),
        tables=table.enabled, catalog=table.catalog, namespace=table.namespace,
        keep_rows=table.retention == "keep", keep_tables=table.on_topic_delete == "keep",
        age_ms=int(compaction.max_age.total_seconds() * 1000),
        size=int(compaction.max_bytes), file_size=int(compaction.target_file_bytes),
        cycle_size=int(compaction.cycle_bytes), small_files=compaction.small_files,
        settled_ms=int(compaction.settled.total_seconds() * 1000), look_s=compaction.look.total_seconds(),
        idle_s=compaction.idle.total_seconds(), master=compaction.master, log_level=logging.level,
        log_form=logging.format,
    )  # fmt: skip


def _place(config: Config) -> tuple[Path, str | None]:
    """The data directory that keeps the log; or any, and the log that brokers of several machines share."""
    data = config.get(BrokerSettings).data.absolute()
    log = config.get(LogSettings).place
    if isinstance(log, SharedLogs):
        return data, str(log)
    match log:
        case ServedLogs(address=Path() as socket):
            return socket.parent, None
        case MemoryLogs():
            raise Invalid("a log in memory is seen by its broker alone: it has no tables")
        case _:
            return data, None


def run_to_the_end(options: CompactorOptions) -> Iterator[Said | int]:
    """What a compactor says, and at last its exit code. An interrupt reaches it by itself: it is in our group."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None, "it was asked for"
        assert process.stdout is not None, "it was asked for"
        process.stdin.write(msgspec.json.encode(options) + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            yield msgspec.json.decode(line, type=Said)
        yield process.wait()


@asynccontextmanager
async def as_broker_that_compacts(config: Config) -> AsyncIterator[Running]:
    """Serve Kafka clients, and start a compactor whenever something is due."""
    if not config.get(CompactionSettings).enabled or config.get(LogSettings).url is not None:
        async with as_broker(config) as running:  # the log is another's, or in memory: who keeps it compacts
            yield running
        return
    async with run_broker(config) as broker:
        keeper = CompactorKeeper(options_of(config), broker, SystemClock())
        work = broker.plane.watch.start("compactor", keeper.run)
        try:
            yield Running(ready=ready_line(broker), failed=broker.failed)
        finally:
            await broker.plane.watch.stop(work)


class CompactorKeeper:
    """Starts a compactor when something is due, and again when it has failed; it leaves by itself.

    Nothing of a table that stands still is due. As often as a compactor leaves (`compaction.idle`), one looks whether
    somebody has undone what was done to it, and leaves at once.
    """

    def __init__(self, options: CompactorOptions, broker: RunningBroker, clock: Clock) -> None:
        self._options = msgspec.structs.replace(options, leave_when_idle=True)
        self._rules = DueRules(age_ms=options.age_ms, size=options.size, file_size=options.file_size)
        self._broker = broker
        self._clock = clock

    async def run(self) -> None:
        failures, ended_ns = 0, self._clock.boot_ns()
        while True:
            await self._clock.sleep(self._options.look_s)
            due = await self._is_due()
            if not due and not self._is_to_look_again(ended_ns):
                continue
            try:
                check_installed()
            except NoSpark as error:
                logger().warning(telemetry.NO_SPARK, reason=str(error), next=error.advice)
                await asyncio.Event().wait()  # said once: nothing here will change before the next start
            code = await self._one(self._options if due else msgspec.structs.replace(self._options, once=True))
            ended_ns = self._clock.boot_ns()
            failures = failures + 1 if code else 0
            if code:
                pause_s = PAUSES_S[min(failures, len(PAUSES_S)) - 1]
                logger().warning(telemetry.COMPACTOR_ENDED, exit_code=code, again_in_s=pause_s)
                await self._clock.sleep(pause_s)

    async def _is_due(self) -> bool:
        machines = {domain: replica.machine for domain, replica in self._broker.plane.domains}
        for number, found in enumerate(look_for_due(machines, self._rules)):
            if found is not None:
                return True
            if number % TOGETHER == 0:
                await asyncio.sleep(0)  # there may be a hundred thousand, and clients wait
        return False

    def _is_to_look_again(self, ended_ns: int) -> bool:
        """Whether a table stands still, and nobody has looked at it for a while."""
        waited_s = (self._clock.boot_ns() - ended_ns) / 1e9
        return waited_s >= self._options.idle_s and bool(
            self._broker.plane.domains.catalog.machine.table_marks.by_topic
        )

    async def _one(self, options: CompactorOptions) -> int:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        assert process.stdin is not None, "it was asked for"
        process.stdin.write(msgspec.json.encode(options) + b"\n")
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), END_S)
                except TimeoutError:
                    process.kill()
                    await process.wait()
