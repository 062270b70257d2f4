"""Running a role until it is told to stop: signals, the ready line, exit codes.

Invariants
    OF3  A process that is told to stop is gone within 30 seconds, whatever
         its disk, its store or its clients do.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import typer

from dray.cli.output import FAILURE, Format, next_step, refuse
from dray.cli.settings import LoggingSettings
from dray.config import Config
from dray.disk import DirectoryInUse
from dray.errors import DrayError, Kind
from dray.memory import MIB, collect_less, keep_freed_buffers
from dray.node.descriptors import raise_limit
from dray.node.roles.broker import RunningBroker, run_broker
from dray.telemetry import configure_logging

IN_USE: Final = 3
CORRUPT: Final = 4
KEPT_BYTES: Final = 256 * MIB
STOP_S: Final = 27.0
"""From the signal to the end without those who do not answer; a few seconds are left for slow machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A role that serves."""

    ready: str
    """What is told on stdout, behind the word `ready`."""
    failed: "asyncio.Future[DrayError]"
    """Resolves when the process must end."""


Role: TypeAlias = Callable[[Config], AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def as_broker(config: Config) -> AsyncIterator[Running]:
    """Serve Kafka clients."""
    async with run_broker(config) as broker:
        yield Running(ready=ready_line(broker), failed=broker.failed)


def ready_line(broker: RunningBroker) -> str:
    """Where a broker is to be found."""
    grpc = "" if broker.grpc is None else f" grpc={broker.grpc}"
    outside = "" if broker.outside is None else f" outside={broker.outside}"
    return f"kafka={broker.advertised} http={broker.http.url}{grpc}{outside}"


def serve(config: Config, role: Role = as_broker) -> None:
    """Serve until SIGTERM or SIGINT; ends the process with the exit code that the outcome has."""
    logging = config.get(LoggingSettings)
    configure_logging(logging.level, form=logging.format)
    keep_freed_buffers(KEPT_BYTES, heaps=1)
    raise_limit()
    try:
        failure = _run(config, role)
    except DrayError as error:
        raise _exit(error) from error
    if failure is not None:
        raise _exit(failure) from failure


def exit_code(error: DrayError) -> int:
    """3 directory in use, 4 corrupt, 2 bad configuration, 1 anything else."""
    if isinstance(error, DirectoryInUse):
        return IN_USE
    return {Kind.CORRUPT: CORRUPT, Kind.INVALID: 2}.get(error.kind, 1)


def _exit(error: DrayError) -> typer.Exit:
    refuse(Format.TEXT, [str(error)], kind=error.kind.name.lower(), then=next_step(error))
    return typer.Exit(exit_code(error))


def _run(config: Config, role: Role) -> DrayError | None:
    try:
        import uvloop
    except ImportError:  # not on every platform; asyncio's own loop serves too
        return asyncio.run(_serve(config, role))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, role))


async def _serve(config: Config, role: Role) -> DrayError | None:
    """None after a clean stop, or why the process must end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    leaving = threading.Timer(STOP_S, _leave)
    leaving.daemon = True

    def told() -> None:
        if not stop.is_set():
            stop.set()
            leaving.start()  # OF3: a thread, for the loop may be what hangs

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    ready = asyncio.Event()
    held = asyncio.create_task(_hold(role(config), ready, stop))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((held, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not ready.is_set():
        held.cancel()  # told to stop before it served, or it has ended by itself
    try:
        return await held
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        return None
    finally:
        leaving.cancel()


async def _hold(
    role: AbstractAsyncContextManager[Running], ready: asyncio.Event, stop: asyncio.Event
) -> DrayError | None:
    async with role as running:
        collect_less()
        print(f"ready {running.ready}", file=sys.stdout, flush=True)
        ready.set()
        told = asyncio.create_task(stop.wait())
        await asyncio.wait((told, running.failed), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        return running.failed.result() if running.failed.done() else None


def _leave() -> None:
    """End the process now; what was acknowledged is durable, as after any crash."""
    refuse(
        Format.TEXT,
        [f"the process did not come to its end within {STOP_S:.0f} s: a disk or a store does not answer"],
        kind="unavailable",
        then="look at the disk and the store, then start it again; what was acknowledged is safe",
    )
    os._exit(FAILURE)
