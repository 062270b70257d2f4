"""Mistakes about groups: who hears a member, for how long, and in which generation or epoch."""

import asyncio
from dataclasses import replace
from typing import Final

from dray.groups.classic import ClassicService
from dray.groups.consumer import ConsumerService, Heartbeat
from dray.groups.homes import Homes
from dray.groups.keeper import GroupKeeper
from dray.machine.groups import reconcile as rules
from dray.machine.groups import told
from dray.machine.groups.beats import Beaten, SetTarget
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import GroupCode
from dray.machine.groups.commands import JoinClassic, Rehome
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.group import Moment
from dray.machine.groups.masks import Masks, held
from dray.machine.groups.names import MemberId
from dray.machine.groups.reconcile import Holding, MemberState, Next, Standing, release
from dray.machine.groups.roster import ClassicMember, Preparing, Roster
from dray.machine.groups.subscriptions import Subscriptions
from dray.machine.names import SessionId, TopicId
from dray.machine.offsets import CommitOffsets
from dray.machine.verdict import Verdict
from dray.replica.replica import Replica

_LATER: Final[set["asyncio.Task[object]"]] = set()
_LATE_S: Final = 4.0

# -- homes and keepers -------------------------------------------------------


async def rehome_later(self: ClassicService, replica: Replica, group: str, member: MemberId) -> None:
    """A call is answered before the move is known."""
    task: asyncio.Task[object] = asyncio.ensure_future(_quietly(replica, group, member))
    _LATER.add(task)
    task.add_done_callback(_LATER.discard)


async def _quietly(replica: Replica, group: str, member: MemberId) -> None:
    await asyncio.sleep(_LATE_S)
    await asyncio.gather(replica.propose(Rehome(group=group, members=(member,))), return_exceptions=True)


async def never_rehome(self: ClassicService, replica: Replica, group: str, member: MemberId) -> None:
    """Whoever beats here is answered, and its home elsewhere hears nothing of it."""


def anyone_may_answer(self: Homes, group: str, member: MemberId, home: SessionId) -> bool:
    """Whoever is asked answers from memory, and its home elsewhere hears nothing of it."""
    return True


def anyone_may_judge(moment: Moment, home: SessionId, named: SessionId) -> bool:
    """A member goes on the word of a broker that it has left."""
    return True


def is_never_late(member: object, seen: int) -> bool:
    """A word counts, however old it is."""
    return False


def keeps_old_deadlines(self: Homes, session: SessionId, members: object) -> None:
    """What was timed before a member went elsewhere still counts when it comes back."""


_LOOK_AT_HOME: Final = GroupKeeper.look_at_home


def gone_at_once(self: GroupKeeper, group: str, member: MemberId, home: SessionId, session_ms: int) -> None:
    """Who is heard by a broker that died is taken for dead, too."""
    _LOOK_AT_HOME(self, group, member, home, 0 if self._is_gone(home) else session_ms)


def forgets_given_ids(self: GroupKeeper, group: ClassicGroup) -> None:
    """Nobody looks after an id whose broker has ended."""
    for member in group.members.values():
        self.look_at_home(group.id, member.id, member.home, member.session_ms)


# -- classic groups ----------------------------------------------------------

_END_PHASE: Final = ClassicGroup.end_phase


def whatever_the_tick(self: ClassicGroup, moment: Moment, tick: int) -> bool:
    """A timer of the past ends the present phase."""
    return _END_PHASE(self, moment, self.tick)


def marks_by_tick(self: ClassicGroup, moment: Moment, tick: int) -> bool:
    """A delay that is extended forgets who has joined."""
    initial = isinstance(self.state, Preparing) and self.state.initial
    ended = _END_PHASE(self, moment, tick)
    if ended and initial and isinstance(self.state, Preparing):
        self.round += 1
    return ended


_MAY_COMMIT: Final = told.may_commit


def in_any_generation(group: Roster, member: MemberId, instance: str | None, generation: int) -> GroupCode:
    """A commit is taken from whoever was in a generation, whichever."""
    code = _MAY_COMMIT(group, member, instance, generation)
    past = code in (GroupCode.OTHER_GENERATION, GroupCode.UNKNOWN_MEMBER)
    return GroupCode.ACCEPTED if past else code


def keeps_its_wish(self: ClassicGroup, member: ClassicMember, call: JoinClassic) -> None:
    """What a member says of itself counts when it joins for the first time only."""


# -- consumer groups ---------------------------------------------------------

_JOIN: Final = ConsumerService._join


async def tells_the_target_at_wake(
    self: ConsumerService, replica: Replica, call: Heartbeat, seen: int
) -> Beaten | GroupCode:
    """Who has waited for a target is told what the state says then, and not what the machine gave it."""
    verdict = await _JOIN(self, replica, call, seen)
    group = replica.machine.groups.consumer(call.group)
    member = None if group is None else group.members.get(MemberId(call.member))
    if isinstance(verdict, GroupCode) or group is None or member is None:
        return verdict
    return replace(verdict, epoch=group.assignment_epoch, assigned=tuple(sorted(member.target.items())))


_ADVANCE: Final = rules._advance


def own_is_anothers(member: Holding, standing: Standing, said: Masks | None) -> Next:
    """What a member lets go of counts as somebody else's, although it is to have it again."""
    return _ADVANCE(replace(member, revoking={}), standing, said)


_MAY_COMMIT_AT: Final = ConsumerGroup.may_commit


def at_any_epoch(self: ConsumerGroup, command: CommitOffsets) -> GroupCode:
    """A commit is taken from any member, and from who was one."""
    code = _MAY_COMMIT_AT(self, command)
    return GroupCode.ACCEPTED if code in (GroupCode.STALE_EPOCH, GroupCode.UNKNOWN_MEMBER) else code


def put_assigned_only(member: Holding, following: Next, owned: Masks) -> None:
    """What a member has to let go of is free at once."""
    release(member, owned)
    for topic, parts in following.assigned.items():
        owned[topic] = owned.get(topic, 0) | held(parts)
    member.previous, member.epoch, member.state = member.epoch, following.epoch, following.state
    member.assigned, member.revoking = following.assigned, following.revoking


_RECONCILE: Final = rules.reconcile


def moves_on_unrevoked(member: Holding, standing: Standing, said: Masks | None) -> Next | None:
    """A member that has to let go of something comes to the next epoch all the same."""
    following = _RECONCILE(member, standing, said)
    if following is not None and following.state is MemberState.UNREVOKED:
        return replace(following, epoch=standing.assignment_epoch)
    return following


def silence_lets_go(runs: object, said: Masks | None) -> bool:
    """A member that does not say what it owns is taken to own nothing."""
    return False


_SET_TARGET: Final = ConsumerGroup.set_target


def target_of_any_epoch(self: ConsumerGroup, moment: Moment, command: SetTarget) -> Verdict:
    """A target is taken that was made for a group as it was."""
    kept = self.epoch
    late = command.epoch < kept and self.is_behind
    return _SET_TARGET(self, moment, SetTarget(
        group=command.group, epoch=kept if late else command.epoch, slice=command.slice, last=command.last,
        rows=command.rows,
    ))  # fmt: skip


_SEE: Final = Subscriptions.see


def see_anything(self: Subscriptions, name: str, topic: TopicId, partitions: int, catalog: int) -> bool:
    """A topic is what the last broker to speak knows of it."""
    known = self.views.get(name)
    newest = catalog if known is None else max(catalog, known.catalog + 1)
    return _SEE(self, name, topic, partitions, newest)
