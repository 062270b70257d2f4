"""Settings of fetch: how much is kept in memory, and how the store is read."""

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator

from dray.config import Section, Size


class FetchSettings(Section):
    """How consumers are served."""

    cache_bytes: Size = Size("256MiB")
    """Keep written and read objects in memory up to this size. 0: every fetch reads the store."""

    cold_cache_bytes: Size = Size("64MiB")
    """Keep rows read from table files in memory up to this size. Smaller: consumers that catch up at the same time
    read the same rows again and again; a group of rows, about 8 MiB, is always kept."""

    young: timedelta = timedelta(minutes=1)
    """Read objects below this age whole, since all their streams are about to be asked for; older ones in ranges."""

    join_gap_bytes: Size = Size("1MiB")
    """Read this many bytes that nobody asked for, if that saves a request."""

    readahead_bytes: Size = Size("4MiB")
    """Read ahead of a consumer that catches up on a partition by this much. 0: not at all."""

    gets_in_flight: int = Field(default=32, ge=1, le=10_000)
    """Read at most this many objects or ranges at a time."""

    read_deadline: timedelta = timedelta(seconds=30)
    """Answer a retriable error when the store has not given an object after this long."""

    max_wait: timedelta = timedelta(minutes=1)
    """Let no fetch wait longer than this for records, whatever it asks for."""

    max_bytes: Size = Size("55MiB")
    """Put no more than this into one response, whatever is asked for; a larger first batch is sent all the same."""

    @model_validator(mode="after")
    def _reading_ahead_fits_the_cache(self) -> Self:
        # What is read ahead waits in the cache: it must not drive out what it was read for.
        if self.cache_bytes and 4 * self.readahead_bytes > self.cache_bytes:
            raise ValueError("fetch.readahead_bytes must be at most a quarter of fetch.cache_bytes")
        return self
