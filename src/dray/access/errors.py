"""Why somebody is not let in, or not yet. No text of these names a secret."""

from dray.errors import Conflict, DrayError, Invalid, Kind, NotFound, Unavailable


class Unauthenticated(DrayError):
    """Nobody knows who asks: no key, or one that is not valid. The text is the same for every wrong key."""

    kind = Kind.UNAUTHENTICATED


class Forbidden(DrayError):
    """It is known who asks, and they may not."""

    kind = Kind.FORBIDDEN


class OverLimit(Unavailable):
    """One caller has as much as one may have; nothing happened. The message says of what."""


class ConfirmationNeeded(Conflict):
    """What cannot be undone is done when it is asked for a second time, with this confirmation."""

    def __init__(self, message: str, /, confirmation: str, **facts: object) -> None:
        super().__init__(message, **facts)
        self.confirmation = confirmation


class NoSuchKey(NotFound):
    """No key has this id."""


class BadKeyRequest(Invalid):
    """A key cannot be as it is wanted."""


class AuditUnwritten(Unavailable):
    """What administrators do cannot be written down at the moment, so it is not done."""

    advice = "free some space for the audit directory of the broker, or mend its disk"
