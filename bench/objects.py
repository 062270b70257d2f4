"""Local object puts against what the disk itself can do."""

import asyncio
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import Absolute, Comparison

from dray.disk import LocalDisk
from dray.objects.files import FileObjects
from dray.offload import ThreadOffload

OBJECT_BYTES = 4 << 20
IN_FLIGHT = 4
OBJECTS = 64
MIB = 1 << 20


def cases() -> list[Comparison | Absolute]:
    return [
        Comparison(
            name="objects.put.files",
            subject=lambda: _in_new_directory(_put_objects),
            peer=lambda: _in_new_directory(_write_and_sync),
            mark=0.8,
            unit="MiB/s",
            note="4 MiB objects, four in flight, durable, against bare parallel write + fdatasync on the same disk",
        )
    ]


def _in_new_directory(run: Callable[[Path], float]) -> float:
    # Beside the repository, not in /tmp, which may be memory.
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=out))
    os.sync()
    try:
        return OBJECTS * OBJECT_BYTES / MIB / run(directory)
    finally:
        shutil.rmtree(directory)


def _parts() -> list[bytes]:
    """An object as the produce path has it: many batches."""
    return [os.urandom(16 << 10)] * (OBJECT_BYTES >> 14)


def _put_objects(directory: Path) -> float:
    async def run() -> float:
        offload = ThreadOffload(IN_FLIGHT + 1)
        objects = FileObjects(directory, LocalDisk(), offload)
        await objects.open()
        parts = _parts()
        numbers = iter(range(OBJECTS))

        async def putter() -> None:
            for number in numbers:
                await objects.put(f"wal/v1/zone=a/domain=0/date=2026/11/15/{number:032x}.wo", parts)

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(putter())
        seconds = time.perf_counter() - begun
        offload.close()
        return seconds

    return asyncio.run(run())


def _write_and_sync(directory: Path) -> float:
    content = b"".join(_parts())
    numbers = iter(range(OBJECTS))
    lock = threading.Lock()

    def writer() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            fd = os.open(directory / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            assert os.write(fd, content) == OBJECT_BYTES
            os.fdatasync(fd)
            os.close(fd)

    threads = [threading.Thread(target=writer) for _ in range(IN_FLIGHT)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun
