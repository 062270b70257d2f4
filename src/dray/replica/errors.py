"""What a replica tells its callers."""

from dray.errors import Corrupt, Lost, Unavailable, Unknown


class NotServing(Unavailable):
    """This process could not append for too long, so another may soon act in its place: ask another broker."""


class Busy(Unavailable):
    """More proposals wait than the replica takes: try again shortly."""


class TooLate(Unavailable):
    """It waited too long for its entry and was never sent: try again, here or elsewhere."""


class Behind(Unavailable):
    """This replica does not see the newest entries of its log: try again, or ask another broker."""


class Stopped(Unavailable):
    """The replica is stopping or has stopped; nothing happened."""


class NotLoaded(Unavailable):
    """The domain is not loaded here at the moment (DL3): nothing happened; try again, or ask who leads it."""


class CommitUnknown(Unknown):
    """The entry may have been applied; its session was given up, so it will not be applied later than that."""


class Superseded(Lost):
    """Another process took this session's name over, or runs as a copy of this one: end the process."""


class Diverged(Corrupt):
    """The log and this replica disagree (Q6): it was rolled back, an entry was missed, or states differ."""


class TooNew(Corrupt):
    """The log speaks a version that this build does not know: run a newer Dray. Nothing was changed."""

    advice = "run the build that its brokers run: nothing was changed"
