"""What can be wrong with settling records."""

from dray.errors import Conflict, Invalid, Unavailable, Unknown


class BadAck(Invalid):
    """The offsets were never handed out, or cannot be."""


class GroupHasMembers(Conflict):
    """The group has members of its own, which commit its offsets: use another group."""


class TooScattered(Unavailable):
    """Too many ranges are settled above an offset that is not: settle that one, or let it be handed out again."""


class NoRoom(Unavailable):
    """The offsets of all groups have used up their budget."""


class AckFailed(Unavailable):
    """Nothing was settled; try again."""


class AckUnknown(Unknown):
    """It may have been settled; to repeat it is harmless."""
