"""What a broker leaves to others, though it could serve it."""


class Sending:
    """Whether clients are sent to the brokers that they are told of."""

    __slots__ = ("groups", "partitions")

    def __init__(self, *, enforced: bool) -> None:
        """`enforced`: always, and not only at the end."""
        self.partitions = enforced
        self.groups = enforced

    def leave(self) -> None:
        """This broker is about to stop: let clients look for the new leaders while they can still ask here."""
        self.partitions = True
