"""What a fetch or a lookup of offsets may be answered instead of records."""

from dray.errors import Corrupt, Invalid, NotFound, Unavailable


class OffsetOutOfRange(Invalid):
    """The offset lies below the log start or beyond the end; said only after a sync."""


class BelowStart(OffsetOutOfRange):
    """The records were deleted: the log start has passed them."""


class AboveEnd(OffsetOutOfRange):
    """Nothing was written there yet."""


class StreamGone(NotFound):
    """The stream is closed or was never opened; said only after a sync."""


class DamagedObject(Corrupt):
    """An object that a fresh index entry names is missing, short or changed. Ask again: it may be brought back."""


class BadStoredBatch(Corrupt):
    """The bytes where the index says a batch lies are not that batch."""


class ReadTimeout(Unavailable):
    """The store did not give an object in time."""


class Unreadable(Unavailable):
    """The store refused a read for a reason that no consumer can mend: an operator must look."""


class NotHere(Unavailable):
    """This process does not follow the domain of the stream: ask another broker."""
