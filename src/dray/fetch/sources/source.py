"""What fetch asks of a source: the batches of rows that name objects of one kind."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dray.errors import DrayError
from dray.fetch.plan import Place, Run
from dray.machine.index import IndexRow


class RunRead(NamedTuple):
    """The batches of a run up to the first that could not be read, and why not."""

    rows: Sequence[IndexRow]
    """Where each batch begins and ends: the rows of the run, where a row is one batch as it was received."""
    views: list[memoryview]
    """As many as were read; perhaps fewer than rows."""
    error: DrayError | None
    own: bool
    """Every batch was written by this process and still in memory."""


class Source(Protocol):
    """Reads batches for everyone in this process."""

    readahead_limit: int
    """How many bytes it reads ahead of consumers at most, all together; 0: it does not."""

    async def read(self, runs: Sequence[Run]) -> list[RunRead]:
        """The batches of each run, in order; what fails, fails for its run alone."""
        ...

    def read_ahead(self, runs: Sequence[Run]) -> None:
        """Begin to read what is not in memory; nobody waits for it, and it may be left undone."""
        ...

    def forget(self, place: Place) -> None:
        """Read an object anew from here on."""
        ...

    async def close(self) -> None:
        """End all reads."""
        ...
