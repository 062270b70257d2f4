"""What a Spark job is told."""

from dray.errors import Corrupt, Invalid, NotFound, Unavailable


class BadOption(Invalid):
    """An option of the source is wrong: correct it."""


class NoSuchTopic(NotFound):
    """A topic or partition that was asked for is not there."""


class DataLoss(Invalid):
    """Offsets that were asked for are not in the log: they expired, or never were."""


class BrokenObject(Corrupt):
    """An object does not hold what the index says; the job must not go on without it."""


class NotPinned(Unavailable):
    """The objects of a plan could not be held: nothing was read."""


class NotRead(Unavailable):
    """The store did not give an object: nothing is wrong with the job."""
