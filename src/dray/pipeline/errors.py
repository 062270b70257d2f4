"""What a Spark job is told."""

from dray.errors import Corrupt, DrayError, Invalid, NotFound, Unavailable
from dray.objects.port import Denied, NoSuchObject


class BadOption(Invalid):
    """An option of the source is wrong: correct it."""


class NotYet(Invalid):
    """The source cannot do this today: use what the message names."""


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


def told(error: DrayError, **facts: object) -> DrayError:
    """What a job is told when an object cannot be read; facts name object, stream and offset (SP3)."""
    match error:
        case Unavailable() | Denied():
            return NotRead(
                "the store does not give an object: check it, then run the job again", **facts, reason=str(error)
            )
        case NoSuchObject():
            return BrokenObject(
                "an object of the plan is gone: load the DataFrame again; if its read took longer than pinSeconds, "
                "raise that",
                **facts, reason=str(error),
            )  # fmt: skip
        case _:
            return broken(str(error), **facts)


def broken(reason: str, **facts: object) -> BrokenObject:
    """An object that is there, and is not what the index says."""
    return BrokenObject(
        "an object does not hold what the index says: check the store, then run the job again", **facts, reason=reason
    )
