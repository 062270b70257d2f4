"""What became of a batch that got no offsets."""

from dray.errors import Conflict, Invalid, Lost, NotFound, Unavailable, Unknown


class StreamMissing(NotFound):
    """The stream does not exist here, or is closed: its topic was deleted."""


class OutOfOrder(Conflict):
    """The sequence does not follow the producer's last one."""


class ProducerFenced(Lost):
    """A newer epoch of the producer has written to the stream."""


class BadBatch(Invalid):
    """The machine takes no such batch; nothing was stored."""


class Overloaded(Unavailable):
    """More waits than may wait: send less, or try again shortly."""


class Stopping(Unavailable):
    """The service takes nothing more; nothing happened."""


class NotStored(Unavailable):
    """The object could not be written or committed. The batch has no offsets and will get none: send it again."""


class Overtaken(Unavailable):
    """A batch before it, of the same producer and stream, was not stored, so this one was not either (PR2)."""


class StoredUnknown(Unknown):
    """The batch may have got its offsets: send it again with the same producer id, epoch and sequence."""


class TimedOut(StoredUnknown):
    """The time that its producer gave has passed. It is still on its way, and may get its offsets."""


class VersionMoved(Conflict):
    """A stream ends elsewhere than expected: read what came, and try again with the new end."""

    def __init__(self, *, stream: int, version: int) -> None:
        super().__init__("the stream has another version", stream=stream, version=version)
        self.stream = stream
        self.version = version


class TransactionReused(Conflict):
    """A transaction of this name wrote something else: choose another name."""


class ManyDomains(Invalid):
    """What should be written at once lies in several domains."""
