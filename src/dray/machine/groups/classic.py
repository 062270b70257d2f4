"""A classic group: members that agree on a generation, and a leader that assigns.

    Empty --first join--> Preparing --all joined, or time is up--> Completing --leader syncs--> Stable
      ^                     |    ^                                      |                          |
      +---- nobody left ----+    +----- join, leave, silence, time -----+--------------------------+

Pure: ids, delays and limits come with the command, and timers are outside.
`round` names a rebalance; `tick` names a timer, so that the word of a timer
of the past has no effect. What a call is told is in `told`.

Invariants
    G1  A group moves only along the edges above; `round`, `tick` and
        `generation` never fall, over conversions too.
    G2  In one generation every member has one assignment, stored before
        anyone is told.
    G3  A member waits if and only if its `joined` is the round; `awaiting`
        counts them. A join ends only by all, by none left, or by its tick.
    G5  `home` is the session of the entry that last named the member; only
        `apply` sets it.
"""

from typing import ClassVar

from dray.machine.groups import forms, told
from dray.machine.groups.codes import Assigned, Denied, GroupCode, PendingJoin, Waiting
from dray.machine.groups.commands import AssignClassic, JoinClassic, Removal, RemoveMembers
from dray.machine.groups.group import Moment
from dray.machine.groups.names import MemberId
from dray.machine.groups.removal import judge
from dray.machine.groups.roster import (
    ClassicMember,
    Completing,
    Empty,
    PendingMember,
    Preparing,
    Roster,
    Stable,
    State,
)
from dray.machine.noun import Fields
from dray.machine.offsets import CommitOffsets
from dray.machine.packing import Writer
from dray.machine.verdict import Verdict


class ClassicGroup(Roster):
    """A group of members that assign among themselves."""

    __slots__ = ()
    kind: ClassVar[str] = "classic"

    def join(self, moment: Moment, call: JoinClassic) -> Verdict:
        """Judge a JoinGroup. A group that denies it is unchanged, but for a member that has no room in it."""
        if not self._has_room(call):
            self._make_room(moment, call.member)
            return Denied(code=GroupCode.FULL)
        if not self._speaks_with(call):
            return Denied(code=GroupCode.OTHER_PROTOCOL)
        if call.new:
            return self._join_new(moment, call)
        if call.member in self.pending:
            del self.pending[call.member]
            return self._add(moment, call)
        found = told.find(self, call.member, call.instance)
        if isinstance(found, GroupCode):
            return Denied(code=found)
        return self._join_again(moment, call, found)

    def _join_new(self, moment: Moment, call: JoinClassic) -> Verdict:
        if call.instance is not None:
            holder = self.statics.get(call.instance)
            return self._add(moment, call) if holder is None else self._replace(moment, call, self.members[holder])
        if not call.must_know:
            return self._add(moment, call)
        self.pending[call.member] = PendingMember(home=moment.session, session_ms=call.session_ms)
        self._moved(moment)
        return PendingJoin(member=call.member)

    def _join_again(self, moment: Moment, call: JoinClassic, member: ClassicMember) -> Verdict:
        moment.welcome(self.id, member)
        if member.protocols == call.protocols:
            if isinstance(self.state, Completing):
                return told.joined(self, member)
            if isinstance(self.state, Stable) and member.id != self.leader:
                return told.joined(self, member, as_follower=True)
        self._update(member, call)
        return self._wait_for_all(moment, call, member)

    def _has_room(self, call: JoinClassic) -> bool:
        known = self.members.get(call.member)
        match self.state:
            case Empty():
                return True
            case Preparing():
                return (known is not None and self.waits(known)) or self.awaiting < call.max_size
            case _:
                return known is not None or len(self.members) < call.max_size

    def _make_room(self, moment: Moment, member: MemberId) -> None:
        """Who was known but does not fit any more must not hold up the others."""
        known = self.members.get(member)
        if known is not None:
            self.forget(known)
        if known is not None or self.pending.pop(member, None) is not None:
            self.settle(moment)

    def _speaks_with(self, call: JoinClassic) -> bool:
        """Whether the caller has a protocol that all members have."""
        if isinstance(self.state, Empty):
            return bool(call.protocol_type and call.protocols)
        common = any(self.support.get(name, 0) == len(self.members) for name, _ in call.protocols)
        return call.protocol_type == self.protocol_type and common

    def _add(self, moment: Moment, call: JoinClassic) -> Verdict:
        if not self.members:
            self.protocol_type = call.protocol_type
        match self.state:
            case Preparing(initial=True, delay_ms=delay_ms, left_ms=left_ms):
                self.state = Preparing(initial=True, newcomers=True, delay_ms=delay_ms, left_ms=left_ms)
        member = ClassicMember(
            id=call.member, instance=call.instance, client_id=call.client_id, client_host=call.client_host,
            session_ms=call.session_ms, rebalance_ms=call.rebalance_ms, protocols=self.shared(call.protocols),
            topics=call.topics, home=moment.session, heard=moment.position,
        )  # fmt: skip
        self.enter(member)
        if self.leader is None:
            self.leader = member.id
        return self._wait_for_all(moment, call, member)

    def _replace(self, moment: Moment, call: JoinClassic, member: ClassicMember) -> Verdict:
        """A static member starts again: its new id takes the old one's place, last in order."""
        old_leader = self.leader
        old, was_waiting = member.id, self.waits(member)
        self.leave(member)
        if was_waiting:
            self.awaiting -= 1
        member.id, member.joined = call.member, 0
        self._set(member, call)
        moment.welcome(self.id, member)
        self.enter(member)
        if old_leader == old:
            self.leader = member.id
        self._changed(moment)  # whoever waits under the old id must be told
        match self.state:
            case Stable() if self.choose() == self.protocol:
                if call.tells_leader:
                    return told.joined(self, member, skip=True)
                return told.joined(self, member, as_follower=True, leader=old_leader)
            case Preparing():
                self._wait(member)
                self.settle(moment)
                return Waiting(member=member.id)
            case _:
                return self._wait_for_all(moment, call, member)

    def _update(self, member: ClassicMember, call: JoinClassic) -> None:
        """What a member says of itself may change with each join; its place does not."""
        self.count_protocols(member, -1)
        self._set(member, call)
        self.count_protocols(member, 1)

    def _set(self, member: ClassicMember, call: JoinClassic) -> None:
        member.client_id, member.client_host = call.client_id, call.client_host
        member.session_ms, member.rebalance_ms = call.session_ms, call.rebalance_ms
        member.protocols, member.topics = self.shared(call.protocols), call.topics

    def _wait_for_all(self, moment: Moment, call: JoinClassic, member: ClassicMember) -> Verdict:
        if not isinstance(self.state, Preparing):
            self.prepare(moment, call.delay_ms)
        self._wait(member)
        self.settle(moment)
        return Waiting(member=member.id)

    def _wait(self, member: ClassicMember) -> None:
        if member.joined != self.round:
            member.joined = self.round  # G3
            self.awaiting += 1

    # -- phases ------------------------------------------------------------

    def prepare(self, moment: Moment, delay_ms: int = 0) -> None:
        """Begin a rebalance."""
        initial = isinstance(self.state, Empty)
        if isinstance(self.state, Completing):
            for member in self.members.values():
                member.assignment = b""
        left_ms = max(0, self.rebalance_ms - delay_ms) if initial else 0
        self._enter(moment, Preparing(initial=initial, delay_ms=delay_ms if initial else 0, left_ms=left_ms))
        self.round += 1  # G1
        self.awaiting = 0

    def settle(self, moment: Moment) -> None:
        """End the join if everyone is here, or nobody is left (G3). A given id holds it up, but not alone."""
        match self.state:
            case Preparing(initial=False) if not self.members:
                self._complete(moment)
            case Preparing(initial=False) if not self.pending and self.awaiting == len(self.members):
                self._complete(moment)
            case _:
                self._moved(moment)

    def end_phase(self, moment: Moment, tick: int) -> bool:
        """The time of a phase is over, if it is still that phase (G3)."""
        if tick != self.tick:
            return False
        match self.state:
            case Preparing(initial=True, newcomers=True, delay_ms=delay_ms, left_ms=left_ms) if left_ms > 0:
                self.state = Preparing(
                    initial=True, delay_ms=min(delay_ms, left_ms), left_ms=max(0, left_ms - delay_ms)
                )  # fmt: skip
                self._arm(moment)
                self._moved(moment)
            case Preparing():
                self._complete(moment)
            case Completing():
                self._drop_leader(moment)
            case _:
                return False
        return True

    def _drop_leader(self, moment: Moment) -> None:
        """It did not sync, or this would be another phase."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is not None:
            self.forget(leader)
        self.prepare(moment)
        self.settle(moment)

    def _complete(self, moment: Moment) -> None:
        late = [member for member in self.members.values() if member.joined != self.round and member.instance is None]
        for member in late:
            self.forget(member)
        joined = [member for member in self.members.values() if member.joined == self.round]
        if self.members and not joined:  # only static ones are left, and they may come back: ask again
            self._arm(moment)
            self._changed(moment)
            return
        self.generation += 1  # G1
        self.awaiting = 0
        if not joined:
            self.protocol, self.leader, self.topics = None, None, None
            self._enter(moment, Empty())
            return
        if self.leader not in self.members or self.members[self.leader].joined != self.round:
            self.leader = joined[0].id
        self.protocol = self.choose()
        self.topics = self.subscribed()
        for member in self.members.values():
            member.generation, member.joined = self.generation, 0
        self._enter(moment, Completing())

    def _enter(self, moment: Moment, state: State) -> None:
        """Every change of state comes here (G1)."""
        self.state = state
        self.since_ms = moment.time_ms
        self._arm(moment)
        self._changed(moment)

    def _arm(self, moment: Moment) -> None:
        """Name a new timer. Ticks of a group that was dropped lie below those of its successor."""
        self.tick = max(self.tick + 1, moment.position)

    def _changed(self, moment: Moment) -> None:
        """A wait may have ended."""
        self.revision = moment.position
        moment.step.groups.append(self.id)

    def _moved(self, moment: Moment) -> None:
        """Nobody's wait has ended, but whoever keeps the group must look."""
        self.revision = moment.position
        moment.step.moved.append(self.id)

    # -- assignments, homes, commits ---------------------------------------

    def assign(self, moment: Moment, call: AssignClassic) -> Verdict:
        """Judge a leader's SyncGroup."""
        outcome = told.synced(self, call.member, call.instance, call.generation, call.protocol_type, call.protocol)
        if isinstance(outcome, GroupCode):
            return Denied(code=outcome)
        member = self.members[call.member]
        moment.welcome(self.id, member)
        if outcome is not None:
            return Assigned(assignment=outcome)
        if member.id != self.leader:
            return Waiting(member=member.id)
        given = dict(call.rows)
        for other in self.members.values():
            other.assignment = given.get(other.id, b"")  # G2
        self._enter(moment, Stable())
        return Assigned(assignment=member.assignment)

    def rehome(self, moment: Moment, member: MemberId) -> GroupCode:
        found = self.members.get(member)
        if found is None:
            return GroupCode.UNKNOWN_MEMBER
        moment.welcome(self.id, found)
        return GroupCode.ACCEPTED

    def may_commit(self, command: CommitOffsets) -> GroupCode:
        return told.may_commit(self, MemberId(command.member), command.instance, command.generation)

    def commit(self, moment: Moment, command: CommitOffsets) -> GroupCode:
        code = self.may_commit(command)
        member = self.members.get(MemberId(command.member))
        if code is GroupCode.ACCEPTED and member is not None:  # an empty group takes commits from anyone
            moment.welcome(self.id, member)
        return code

    def remove(self, moment: Moment, command: RemoveMembers) -> tuple[GroupCode, ...]:
        codes, gone = [], False
        for row in command.rows:
            found = judge(self, moment, command.reason, row)
            if isinstance(found, GroupCode):
                codes.append(found)
                continue
            if isinstance(found, ClassicMember):
                self.forget(found)
            else:
                del self.pending[found]
            gone = gone or command.reason is not Removal.PENDING
            codes.append(GroupCode.ACCEPTED)
        if gone and isinstance(self.state, Stable | Completing):
            self.prepare(moment)
        if GroupCode.ACCEPTED in codes:
            self._changed(moment)  # whoever waits under a removed id must be told
            self.settle(moment)
        return tuple(codes)

    def dump(self, out: Writer) -> None:
        forms.dump(self, out)

    def show(self) -> Fields:
        return forms.show(self)
