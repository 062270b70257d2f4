"""Running a broker until it is told to stop: signals, the ready line, exit codes."""

import asyncio
import signal
import sys
from typing import Final

import typer

from dray.cli.settings import LoggingSettings
from dray.config import Config
from dray.disk import DirectoryInUse
from dray.errors import DrayError, Kind
from dray.memory import MIB, collect_less, keep_freed_buffers
from dray.node.broker import run_broker
from dray.node.descriptors import raise_limit
from dray.telemetry import configure_logging

IN_USE: Final = 3
CORRUPT: Final = 4
KEPT_BYTES: Final = 256 * MIB


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; ends the process with the exit code that the outcome has."""
    configure_logging(config.get(LoggingSettings).level)
    keep_freed_buffers(KEPT_BYTES, heaps=1)
    raise_limit()
    try:
        failure = _run(config)
    except DirectoryInUse as error:
        raise _exit(error, IN_USE) from error
    except DrayError as error:
        raise _exit(error, exit_code(error)) from error
    if failure is not None:
        raise _exit(failure, exit_code(failure)) from failure


def exit_code(error: DrayError) -> int:
    """3 directory in use, 4 corrupt, 2 bad configuration, 1 anything else."""
    if isinstance(error, DirectoryInUse):
        return IN_USE
    return {Kind.CORRUPT: CORRUPT, Kind.INVALID: 2}.get(error.kind, 1)


def _exit(error: DrayError, code: int) -> typer.Exit:
    typer.echo(f"drayd: {error}\n  next: {error.kind.value}", err=True)
    return typer.Exit(code)


def _run(config: Config) -> DrayError | None:
    try:
        import uvloop
    except ImportError:  # not on every platform; asyncio's own loop serves too
        return asyncio.run(_serve(config))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config))


async def _serve(config: Config) -> DrayError | None:
    """None after a clean stop, or why the process must end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with run_broker(config) as broker:
        collect_less()
        print(f"ready kafka={broker.kafka} http={broker.http}", file=sys.stdout, flush=True)
        told = asyncio.ensure_future(stop.wait())
        await asyncio.wait((told, broker.failed), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        return broker.failed.result() if broker.failed.done() else None
