"""The audit file: what administrators did, one JSON object a line, each bound to the one before by a hash.

    DIR/audit/00000001.jsonl, 00000002.jsonl, ...

A line is written, and synced, after its command was applied and before its
caller is told. The log of commands says the same by itself (who, and which
request); the file says it in one place, with the result.

When the disk does not take a line, what was done stays done and is told so.
The line is kept in memory and is the first of the next file; until that is
written nothing more is done for administrators, and the broker is not ready.

Invariants
    AU1  A line holds the hash of the line before, over files too; whoever
         changes, drops or inserts one is found by `check_chain`.
    AU2  A caller is told of what it did when the line is durable, or when the
         disk refused it; then nothing else is done until it is written.
    AC12  Every command of an administrator that came here is in the file once.
"""

import asyncio
import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dray.access import telemetry
from dray.access.errors import AuditUnwritten
from dray.disk import Disk, File
from dray.errors import Corrupt, DrayError
from dray.offload import Offload
from dray.telemetry import logger

FIRST: Final = "0" * 64
FILE_BYTES: Final = 64 << 20
MOST_KEPT: Final = 1_000
"""Lines that wait for a disk; more are never begun."""
UNSURE_BYTES: Final = 1 << 20
"""What at most may have been written since a sync that was seen to return."""
_NAME: Final = re.compile(r"([0-9]{8})\.jsonl")
_REPEATS: Final = 2 * MOST_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What somebody asked for, and what became of it."""

    time_ms: int
    principal: str
    credential: str
    """The id of a key; empty where none was asked."""
    address: str
    door: str
    action: str
    resource: str
    result: str
    request: str
    position: int
    """How far the log had been applied when it was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEnd:
    """Where a chain ends."""

    lines: int
    hash: str
    files: int
    torn_bytes: int
    """Behind the last line of the last file: what a crash or a full disk left, never told to anybody."""


def link(number: int, before: str, deed: Deed) -> tuple[bytes, str]:
    """A line and its hash (AU1)."""
    fields: dict[str, str | int] = {
        "n": number, "time": datetime.fromtimestamp(deed.time_ms / 1_000, UTC).isoformat(timespec="milliseconds"),
        "principal": deed.principal, "credential": deed.credential, "address": deed.address, "door": deed.door,
        "action": deed.action, "resource": deed.resource, "result": deed.result, "request": deed.request,
        "position": deed.position, "before": before,
    }  # fmt: skip
    own = _hash(fields)
    return json.dumps(fields | {"hash": own}).encode() + b"\n", own


def _hash(fields: dict[str, str | int]) -> str:
    return hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=32).hexdigest()


def check_chain(directory: Path, disk: Disk, *, last: bool = False) -> ChainEnd:
    """Read the whole chain, or its last file alone, as it is done when a broker starts (AU1).

    Raises:
        Corrupt: a line was changed, dropped or inserted; it names the file and the line.
    """
    names = audit_files(directory, disk)
    files = _newest(directory, disk, names) if last else names
    reading, torn = _Reading(anchored=not last), 0
    for name in files:
        lines, torn = _lines(disk.read(directory / name))
        for number, line in enumerate(lines, 1):
            reading.take(line, name, number)
    return ChainEnd(lines=reading.number, hash=reading.before, files=len(names), torn_bytes=torn)


def _newest(directory: Path, disk: Disk, names: list[str]) -> list[str]:
    """The last file that has a line, and those behind it: a crash may have left them empty or cut."""
    for place in range(len(names) - 1, -1, -1):
        if disk.size(directory / names[place]) and _lines(disk.read(directory / names[place]))[0]:
            return names[place:]
    return []


def _lines(content: bytes) -> tuple[list[bytes], int]:
    """The lines of a file, and how many bytes behind them a crash or a full disk left.

    Those were never told to anybody. A crash leaves a line that was cut, or zeros where pages were not written;
    nothing is appended behind them, for the next file begins there.
    """
    zeros = content.find(b"\0")
    whole = content[: content.rfind(b"\n", 0, len(content) if zeros < 0 else zeros) + 1]
    return whole.split(b"\n")[:-1], len(content) - len(whole)


def audit_files(directory: Path, disk: Disk) -> list[str]:
    """The files of the chain, in their order."""
    return [name for name in disk.list(directory) if _NAME.fullmatch(name)]


class _Reading:
    """Follows the chain. A line may stand in two files: a disk that did not say whether it took it."""

    def __init__(self, *, anchored: bool) -> None:
        self.number, self.before = 0, FIRST
        self._anchored = anchored
        self._last: deque[tuple[int, str]] = deque(maxlen=_REPEATS)

    def take(self, line: bytes, name: str, at: int) -> None:
        try:
            fields = json.loads(line)
            own, number, _ = fields.pop("hash"), int(fields["n"]), fields["before"]
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise Corrupt("a line of the audit file cannot be read", file=name, line=at) from broken
        if _hash(fields) != own:
            raise Corrupt("a line of the audit file was changed", file=name, line=at)
        if (number, own) in self._last:
            return
        if not self._anchored:
            self.number, self.before, self._anchored = number - 1, fields["before"], True
        if number != self.number + 1 or fields["before"] != self.before:
            raise Corrupt("lines of the audit file are missing or were inserted", file=name, line=at)
        self.number, self.before = number, own
        self._last.append((number, own))


class AuditFile:
    """The chain of one broker, being written. Blocks: it is called in a thread."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._file: File | None = None
        self._size = 0
        self._names: list[str] = []
        self.number, self.before = 0, FIRST

    def open(self) -> int:
        """Go on where the chain ends; how many bytes a crash left behind it.

        Raises:
            Corrupt: the chain is broken. It is left as it is: nobody goes on behind a change.
        """
        self._disk.make_dir(self._directory)
        end = check_chain(self._directory, self._disk, last=True)
        self.number, self.before = end.lines, end.hash
        self._names = audit_files(self._directory, self._disk)
        if self._names and not end.torn_bytes:
            path = self._directory / self._names[-1]
            self._size = self._disk.size(path) or 0
            self._disk.write_again(path, max(0, self._size - UNSURE_BYTES))  # nobody knows of its last sync (D2)
            self._file = self._disk.open(path)
        return end.torn_bytes

    def write(self, lines: bytes) -> None:
        """Durable when it returns; after an error the file is left, and the next call begins another (D2)."""
        try:
            if self._file is None or self._size >= FILE_BYTES:
                self._begin()
            assert self._file is not None
            self._file.write([lines])
            self._file.sync()
            self._size += len(lines)
        except DrayError:
            self.close()
            raise

    def _begin(self) -> None:
        self.close()
        number = int(self._names[-1].partition(".")[0]) + 1 if self._names else 1
        name = f"{number:08d}.jsonl"
        self._file, self._size = self._disk.create(self._directory / name), 0
        self._names.append(name)
        self._disk.sync_dir(self._directory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Audit:
    """Writes down what was done; lines that come together share a sync."""

    def __init__(self, file: AuditFile | None, offload: Offload) -> None:
        """Without a file (a broker in memory) nothing outlives the process, and nothing is written."""
        self._file = file
        self._offload = offload
        self._number, self._before = 0, FIRST
        self._kept: list[bytes] = []
        self._writing: asyncio.Task[None] | None = None
        self._failure: DrayError | None = None

    async def open(self) -> None:
        if self._file is not None:
            torn = await self._offload.run(self._file.open)
            if torn:
                logger().warning(telemetry.AUDIT_TORN, bytes=torn)
            self._number, self._before = self._file.number, self._file.before

    async def ready(self) -> None:
        """Before something is done: what was done before is written (AU2)."""
        if self._failure is not None or len(self._kept) >= MOST_KEPT:
            await self._write()
        if self._failure is not None:
            raise AuditUnwritten("the audit file cannot be written, so nothing was done") from self._failure

    async def write(self, deed: Deed) -> None:
        """Durable when it returns, unless the disk refused; then `check` says so (AU2)."""
        if self._file is None:
            return
        self._number += 1
        line, self._before = link(self._number, self._before, deed)
        self._kept.append(line)
        await self._write()

    def check(self) -> None:
        """Raise what keeps it from being written: for readiness."""
        if self._failure is not None:
            raise AuditUnwritten("the audit file cannot be written", error=self._failure.message)

    async def mend(self) -> None:
        """Try again, if the disk refused the last time."""
        if self._failure is not None:
            await self._write()

    async def close(self) -> None:
        if self._kept:
            await self._write()
        if self._file is not None:
            self._file.close()

    async def _write(self) -> None:
        """Until what is kept now was tried once."""
        if self._writing is not None:
            await asyncio.shield(self._writing)  # it may have begun before our line came
        if self._kept and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._flush())
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _flush(self) -> None:
        assert self._file is not None
        lines = list(self._kept)
        try:
            await self._offload.run(self._file.write, b"".join(lines))
        except DrayError as error:
            if self._failure is None:
                logger().error(telemetry.AUDIT_DOWN, error=str(error))
            self._failure = error
            telemetry.AUDIT_FAILED.set(1)
            return
        del self._kept[: len(lines)]
        telemetry.AUDIT_LINES.inc(len(lines))
        if self._failure is not None:
            self._failure = None
            telemetry.AUDIT_FAILED.set(0)
            logger().info(telemetry.AUDIT_BACK, lines=len(lines))


def deeds(directory: Path, disk: Disk) -> Iterator[dict[str, str | int]]:
    """Every line, as it stands, of a chain that was checked."""
    for name in audit_files(directory, disk):
        for line in _lines(disk.read(directory / name))[0]:
            yield json.loads(line)
