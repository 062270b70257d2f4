"""Mistakes about groups: who hears a member, for how long, and in which generation."""

import asyncio
from typing import Final

from dray.groups.classic import ClassicService
from dray.groups.homes import Homes
from dray.machine.groups import told
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import GroupCode
from dray.machine.groups.commands import Rehome
from dray.machine.groups.group import Moment
from dray.machine.groups.names import MemberId
from dray.machine.groups.roster import Roster
from dray.machine.names import SessionId
from dray.replica.replica import Replica

_LATER: Final[set["asyncio.Task[object]"]] = set()


async def rehome_later(self: ClassicService, replica: Replica, group: str, member: MemberId) -> None:
    """A call is answered before the move is known."""
    task: asyncio.Task[object] = asyncio.ensure_future(_quietly(replica, group, member))
    _LATER.add(task)
    task.add_done_callback(_LATER.discard)


async def _quietly(replica: Replica, group: str, member: MemberId) -> None:
    await asyncio.gather(replica.propose(Rehome(group=group, members=(member,))), return_exceptions=True)


async def never_rehome(self: ClassicService, replica: Replica, group: str, member: MemberId) -> None:
    """Whoever beats here is answered, and its home elsewhere hears nothing of it."""


_END_PHASE: Final = ClassicGroup.end_phase


def whatever_the_tick(self: ClassicGroup, moment: Moment, tick: int) -> bool:
    """A timer of the past ends the present phase."""
    return _END_PHASE(self, moment, self.tick)


_MAY_COMMIT: Final = told.may_commit


def in_any_generation(group: Roster, member: MemberId, instance: str | None, generation: int) -> GroupCode:
    """A commit is taken from whoever was in a generation, whichever."""
    code = _MAY_COMMIT(group, member, instance, generation)
    past = code in (GroupCode.OTHER_GENERATION, GroupCode.UNKNOWN_MEMBER)
    return GroupCode.ACCEPTED if past else code


def keeps_old_deadlines(self: Homes, session: SessionId, members: object) -> None:
    """What was timed before a member went elsewhere still counts when it comes back."""
