"""What can be wrong with a request about a group."""

from dray.errors import Invalid, Lost, NotFound


class UnknownMember(Lost):
    """The group has no such member: it must join again."""


class UnknownGroup(NotFound):
    """There is no such group, and the request is not one that makes it."""


class BadGroupId(Invalid):
    """A group id is a text of at most 32,767 bytes."""
