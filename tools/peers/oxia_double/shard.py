"""One shard of the double: records in their order, a log of its own on disk, and what a server of Oxia does wrong.

    shard-0.wal     requests as they came, each behind its length; synced before it is applied
    shard-0.db      how many of them were applied when the process ended well

A request goes into the log before it is looked at, as in Oxia. One that
cannot be applied is refused to the client and stays there: after a clean stop
nobody sees it again, after a crash the server does not start any more.
"""

import bisect
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from dray.log.oxia import oxia_pb2 as pb

_LENGTH: Final = struct.Struct(">I")
_LARGEST: Final = (1 << 64) - 1
Order: TypeAlias = tuple[tuple[int, str], ...]


class CannotApply(Exception):
    """What is in the log and can never be applied."""


class CannotWrite(Exception):
    """The log on disk takes nothing."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One record."""

    value: bytes
    version: int


@dataclass(slots=True)
class Batch:
    """What one request changes, before anybody can read it."""

    changes: dict[str, Kept | None] = field(default_factory=dict)
    answer: pb.WriteResponse = field(default_factory=pb.WriteResponse)
    told: list[tuple[str, str]] = field(default_factory=list)
    """(sequence, highest key) in their order; a sequence put that failed tells of none."""
    next_version: int = 0


def natural(key: str) -> Order:
    """By bytes."""
    return ((0, key),)


def hierarchical(key: str) -> Order:
    """By the parts between `/`; the rest of a key that has none of them sorts before one that has."""
    parts = key.split("/")
    return tuple((int(number < len(parts) - 1), part) for number, part in enumerate(parts))


class Shard:
    """All of one shard; its nodes share it, so that none of them is ever behind unless it is told to be."""

    def __init__(self, directory: Path, number: int, *, is_natural: bool, segment_bytes: int) -> None:
        self.number = number
        self.full = False
        self._order = natural if is_natural else hierarchical
        self._segment_bytes = segment_bytes
        self._path = directory / f"shard-{number}.wal"
        self._flushed = directory / f"shard-{number}.db"
        self._broken = False
        self.load()

    # -- on disk ---------------------------------------------------------------

    def load(self, lose: int = 0) -> None:
        """Begin with what is on disk, but for the last requests that were never really there.

        Raises:
            CannotApply: as a server does that refuses to start.
        """
        self.records: dict[str, Kept] = {}
        self._keys: list[tuple[Order, str]] = []
        self._next_version = 0
        self._broken = False
        raw = self._path.read_bytes() if self._path.exists() else b""
        starts, at = [], 0
        while at < len(raw):
            starts.append(at)
            at += _LENGTH.size + _LENGTH.unpack_from(raw, at)[0]
        if lose:
            kept = starts[-lose] if lose <= len(starts) else 0
            raw, starts = raw[:kept], starts[: max(0, len(starts) - lose)]
            self._path.write_bytes(raw)
        flushed = int(self._flushed.read_text()) if self._flushed.exists() else 0
        for number, start in enumerate(starts):
            (length,) = _LENGTH.unpack_from(raw, start)
            request = pb.WriteRequest.FromString(raw[start + _LENGTH.size :][:length])
            try:
                self.commit(self.prepare(request))
            except CannotApply:
                if number >= flushed:
                    raise
        self._written = len(starts)
        self._flushed.unlink(missing_ok=True)
        self._file = self._path.open("ab")

    def append(self, raw: bytes) -> None:
        """Make a request durable, whatever it says.

        Raises:
            CannotWrite: it is not there, or nothing is any more.
        """
        if self._broken:
            raise CannotWrite("oxia: failed to append to wal: invalid next offset in wal")
        if self.full:
            raise CannotWrite("oxia: failed to append to wal: no space left on device")
        if len(raw) > self._segment_bytes:
            self._broken = True  # until the server is started anew
            raise CannotWrite("oxia: failed to append to wal: entry is larger than a segment")
        self._file.write(_LENGTH.pack(len(raw)) + raw)
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._written += 1

    def flush(self) -> None:
        """Before a clean stop."""
        self._flushed.write_text(str(self._written))

    def wipe(self) -> None:
        self._path.unlink()
        self.load()

    # -- writing ---------------------------------------------------------------

    def prepare(self, request: pb.WriteRequest) -> Batch:
        """What a request does: puts first, then range deletes; later ones see earlier ones."""
        batch = Batch(next_version=self._next_version)
        for put in request.puts:
            batch.answer.puts.append(self._put(batch, put))
        for gone in request.delete_ranges:
            for key in self._between(gone.start, gone.end, batch):
                batch.changes[key] = None
            batch.answer.delete_ranges.append(pb.DeleteRangeResponse(status=pb.OK))
        return batch

    def commit(self, batch: Batch) -> None:
        """Let everybody read it, all at once."""
        for key, kept in batch.changes.items():
            place = (self._order(key), key)
            if kept is None:
                if self.records.pop(key, None) is not None:
                    del self._keys[bisect.bisect_left(self._keys, place)]
                continue
            if key not in self.records:
                bisect.insort(self._keys, place)
            self.records[key] = kept
        self._next_version = batch.next_version

    def _put(self, batch: Batch, put: pb.Put) -> pb.PutResponse:
        key = put.key
        if put.sequence_deltas:
            try:
                key = self._next_key(batch, put)
            except CannotApply:
                batch.told.append((put.key, ""))
                raise
            if not key:
                return pb.PutResponse(status=pb.UNEXPECTED_VERSION)
            batch.told.append((put.key, key))
        elif put.HasField("expected_version"):
            there = self._get(batch, key)
            if put.expected_version != (-1 if there is None else there.version):
                return pb.PutResponse(status=pb.UNEXPECTED_VERSION)  # the others of the batch go on
        version = batch.next_version
        batch.next_version += 1
        batch.changes[key] = Kept(put.value, version)
        answer = pb.PutResponse(status=pb.OK, version=pb.Version(version=version))
        if put.sequence_deltas:
            answer.key = key
        return answer

    def _next_key(self, batch: Batch, put: pb.Put) -> str:
        """The key behind the highest of a sequence; none for a put that expects a version."""
        if not put.HasField("partition_key"):
            raise CannotApply("oxia db: failed to apply batch: sequential key needs a partition key")
        if put.HasField("expected_version"):
            return ""
        last = self._lower(f"{put.key}-{_LARGEST:020d}", batch)
        parts = last.removeprefix(put.key).split("-")[1:] if last is not None and last.startswith(put.key) else []
        if len(parts) > len(put.sequence_deltas):
            raise CannotApply("oxia db: failed to apply batch: sequence has fewer deltas than before")
        key = put.key
        for number, delta in enumerate(put.sequence_deltas):
            if number == 0 and delta == 0:
                raise CannotApply("oxia db: failed to apply batch: sequence delta is zero")
            key += f"-{(int(parts[number]) if number < len(parts) else 0) + delta:020d}"
        return key

    # -- reading ---------------------------------------------------------------

    def find(self, key: str, comparison: pb.Comparison) -> str | None:
        """The key that a get means."""
        place = (self._order(key), key)
        left, right = bisect.bisect_left(self._keys, place), bisect.bisect_right(self._keys, place)
        at = {
            pb.EQUAL: left if left < right else -1,
            pb.FLOOR: right - 1,
            pb.CEILING: left,
            pb.LOWER: left - 1,
            pb.HIGHER: right,
        }[comparison]
        return self._keys[at][1] if 0 <= at < len(self._keys) else None

    def between(self, start: str, end: str) -> list[str]:
        """The keys of a range; all at its end or its beginning if that is empty."""
        first = bisect.bisect_left(self._keys, (self._order(start), start)) if start else 0
        last = bisect.bisect_left(self._keys, (self._order(end), end)) if end else len(self._keys)
        return [key for _, key in self._keys[first:last]]

    def copy(self) -> "Shard":
        """As it is now, for who does not hear of what comes."""
        twin = object.__new__(Shard)
        twin.number, twin._order, twin.full = self.number, self._order, False
        twin.records, twin._keys = dict(self.records), list(self._keys)
        return twin

    def _get(self, batch: Batch, key: str) -> Kept | None:
        return batch.changes[key] if key in batch.changes else self.records.get(key)

    def _lower(self, key: str, batch: Batch) -> str | None:
        last = self.find(key, pb.LOWER)
        while last is not None and last in batch.changes and batch.changes[last] is None:
            last = self.find(last, pb.LOWER)
        found = [one for one, kept in batch.changes.items() if kept is not None and self._order(one) < self._order(key)]
        return max([*found, *([] if last is None else [last])], key=self._order, default=None)

    def _between(self, start: str, end: str, batch: Batch) -> list[str]:
        low, high = self._order(start), self._order(end)
        keys = set(self.between(start, end)) | {key for key in batch.changes if low <= self._order(key) < high}
        return [key for key in keys if self._get(batch, key) is not None]
