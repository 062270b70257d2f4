"""What can be wrong with a request about a group."""

from typing import Final

from dray.errors import Conflict, Invalid
from dray.machine.groups.codes import GroupCode

MAX_FACT: Final = 100


class BadGroupId(Invalid):
    """A group id is a text of at most 32,767 bytes, and where members are concerned not an empty one."""


class BadSessionTimeout(Invalid):
    """A session timeout lies within the bounds of `groups.min_session` and `groups.max_session`."""


class AssignmentTooLarge(Invalid):
    """The assignments of a generation do not fit into an entry of the log."""


class GroupSaysNo(Conflict):
    """The group judged a call, and did nothing: the code says what its caller does next."""

    def __init__(self, code: GroupCode, group: str) -> None:
        super().__init__("the group says no", code=code.name.lower(), group=group[:MAX_FACT])
        self.code = code


class BadPattern(Invalid):
    """A subscription's pattern is not one of RE2."""


class UnknownAssignor(Invalid):
    """A member asks for an assignor that there is not."""


class BadGroupConfig(Invalid):
    """There is no such key, or its value is out of bounds."""
