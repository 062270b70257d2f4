"""What can be wrong with a wish to delete records."""

from dray.errors import Invalid


class BeyondEnd(Invalid):
    """The offset is beyond the end of the log, or none at all."""
