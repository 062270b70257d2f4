"""Who is told what became of a batch."""

from typing import Protocol

from dray.errors import DrayError
from dray.produce.batches import Stored


class Receiver(Protocol):
    """A future, or something cheaper. It must not call back into the lane, which walks its queues when it tells."""

    def done(self) -> bool: ...

    def set_result(self, stored: Stored, /) -> None: ...

    def set_exception(self, error: DrayError, /) -> None: ...
