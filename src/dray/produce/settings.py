"""Settings of the write-ahead objects: when a flush starts, how much may wait."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from dray.config import Section, Size
from dray.machine.command import MAX_ROWS

REMOTE_LINGER: Final = timedelta(milliseconds=250)
CROWD_LINGER_MS: Final = 4
LOCAL_APPENDS: Final = 2_000
REMOTE_APPENDS: Final = 200
_LARGEST_FLUSH: Final = Size("256MiB")
_MS: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)


class WalSettings(Section):
    """How produced batches become WAL objects."""

    linger: timedelta | None = None
    """Collect batches for this long before an object is written. Longer: fewer requests to the store, later answers.
    Not set: 250ms on remote stores; none on local files, where batches are collected while a write is under way,
    and for a few milliseconds while many small ones come."""

    flush_bytes: Size = Size("4MiB")
    """Write an object without further delay when this much waits. Larger: fewer requests, more memory."""

    flush_batches: Annotated[int, Field(ge=1, le=MAX_ROWS)] = MAX_ROWS
    """Put at most this many batches into one object."""

    flushes: Annotated[int, Field(ge=1, le=64)] = 4
    """Flushes of one domain that may be under way at once. More: more throughput on a slow store, more memory."""

    max_buffer_bytes: Size = Size("64MiB")
    """Bytes that may wait for their answer in this process; beyond it producers are told to try again."""

    pause_bytes: Size | None = None
    """Stop reading from producers while more than this waits. Not set: half of `max_buffer_bytes`."""

    append_budget: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Objects a second that one domain may write for long; bursts of one second's worth are not delayed.
    Not set: 2000 on local files, 200 on remote stores, where each costs a request."""

    index_budget: Size = Size("1GiB")
    """Memory that the offset index may take, and committed offsets, which get a quarter of it at most. Producers are
    slowed down above 80 % of it and refused above it."""

    hedge_floor: timedelta | None = timedelta(milliseconds=300)
    """Try a write to a remote store a second time when it takes three times the usual, but never before this."""

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> Self:
        if not 0 < self.flush_bytes <= _LARGEST_FLUSH:
            raise ValueError(f"wal.flush_bytes must be from 1B to {_LARGEST_FLUSH}")
        if self.max_buffer_bytes < self.flush_bytes:
            raise ValueError("wal.max_buffer_bytes must be at least wal.flush_bytes")
        if self.pause_bytes is not None and not 0 < self.pause_bytes <= self.max_buffer_bytes:
            raise ValueError("wal.pause_bytes must be from 1B to wal.max_buffer_bytes")
        if self.index_budget <= 0:
            raise ValueError("wal.index_budget must be above 0B")
        return self

    def policy(self, *, local: bool) -> "FlushPolicy":
        """The numbers to act by, for a store on this machine or a remote one."""
        linger = self.linger if self.linger is not None else (timedelta(0) if local else REMOTE_LINGER)
        # A second write to the disk that is slow would only slow it further.
        hedge = None if local else self.hedge_floor
        return FlushPolicy(
            linger_ms=linger // _MS,
            crowd_linger_ms=CROWD_LINGER_MS if local and self.linger is None else 0,
            flush_bytes=int(self.flush_bytes),
            flush_batches=self.flush_batches,
            flushes=self.flushes,
            max_buffer_bytes=int(self.max_buffer_bytes),
            pause_bytes=int(self.max_buffer_bytes) // 2 if self.pause_bytes is None else int(self.pause_bytes),
            appends_per_second=self.append_budget or (LOCAL_APPENDS if local else REMOTE_APPENDS),
            index_bytes=int(self.index_budget),
            hedge_floor_s=None if hedge is None else hedge / _SECOND,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """The settings, resolved for one process."""

    linger_ms: int = 0
    crowd_linger_ms: int = 0
    """Where there is no linger: wait this long at most while many small batches come."""
    flush_bytes: int = 4 << 20
    flush_batches: int = MAX_ROWS
    flushes: int = 4
    max_buffer_bytes: int = 64 << 20
    pause_bytes: int = 32 << 20
    appends_per_second: int = 200
    index_bytes: int = 1 << 30
    hedge_floor_s: float | None = None
    """None: never hedge."""
