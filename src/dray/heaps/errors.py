"""What can be wrong with a request about a heap."""

from dray.errors import Conflict, Corrupt, Invalid, Lost, NotFound, PassingConflict, Unavailable, Unknown


class UnknownHeap(NotFound):
    """No heap has this name."""


class HeapExists(Conflict):
    """A heap or topic of this name exists."""


class HeapAlteredMeanwhile(Conflict):
    """The heap is not as the caller saw it."""


class BadHeap(Invalid):
    """The heap cannot be as it is wanted."""


class BadMessage(Invalid):
    """The message can never be taken as it is."""


class TornBatch(BadMessage):
    """One element of a batch would be refused: nothing of it was taken."""


class BatchConflict(PassingConflict):
    """Nothing of the batch was taken; the same may be sent again."""


class BatchAborted(BatchConflict):
    """It took so long that another broker gave the batch up."""


class BatchUndecided(BatchConflict):
    """A message belongs to a batch of which it is not decided yet whether it is taken."""


class BadToken(Invalid):
    """The text is no lease token."""


class BadMessageId(Invalid):
    """The text is no message id."""


class BadPage(Invalid):
    """There is no such page."""


class MessageLeased(Lost):
    """A consumer holds the message: whoever wants it anyway says so."""


class HeapFull(Unavailable):
    """A limit of the heap or of the broker is reached; nothing happened."""


class LeaseLost(Lost):
    """The token does not hold the message any more: its work must not be committed."""


class MessageGone(NotFound):
    """There is no such message."""


class EnqueueUnknown(Unknown):
    """The message may have been taken: repeat it with the same producer, epoch and sequence, or dedup key."""


class SettleUnknown(Unknown):
    """The settlement may have happened: to repeat it with the same token is harmless."""


class UnreadableBody(Corrupt):
    """The body of a message is missing or damaged."""
