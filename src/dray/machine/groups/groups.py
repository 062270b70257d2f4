"""Groups, as one noun: every group of a domain, of either kind.

A group with committed offsets only has no entry here. The end of a session
touches no group: a member whose home has ended is homeless, and whoever keeps
the group looks after it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

from dray.machine.command import Command
from dray.machine.groups import consumer, forms
from dray.machine.groups.beats import Beat, SetTarget, SetTopics
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import Denied, GroupCode, GroupDropped, Rehomed, Removed
from dray.machine.groups.commands import AssignClassic, DropGroup, EndPhase, JoinClassic, Rehome, RemoveMembers
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.group import Group, Moment
from dray.machine.keys import Shape
from dray.machine.names import SessionId
from dray.machine.noun import Listing, stray
from dray.machine.offsets import CommitOffsets, Offsets
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import Sessions
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import DONE, Verdict, Why, refused

GROUP_KEY: Final = Shape("groups/$")


class Groups:
    """The groups of a domain."""

    name: ClassVar[str] = "groups"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (
        JoinClassic, EndPhase, AssignClassic, RemoveMembers, Rehome, Beat, SetTopics, SetTarget, DropGroup,
    )  # fmt: skip

    def __init__(self, timeline: Timeline, sessions: Sessions, offsets: Offsets) -> None:
        self._timeline = timeline
        self._sessions = sessions
        self._offsets = offsets
        self.all: dict[str, Group] = {}

    def find(self, group: str) -> Group | None:
        return self.all.get(group)

    def classic(self, group: str) -> ClassicGroup | None:
        """The group, if it is a classic one."""
        found = self.all.get(group)
        return found if isinstance(found, ClassicGroup) else None

    def consumer(self, group: str) -> ConsumerGroup | None:
        """The group, if it is a consumer group."""
        found = self.all.get(group)
        return found if isinstance(found, ConsumerGroup) else None

    def names(self) -> list[str]:
        """Of all groups, those with committed offsets only too."""
        return sorted({*self.all, *self._offsets.groups()})

    def apply(self, step: Step, command: Command) -> Verdict:
        moment = Moment(step=step, time_ms=self._timeline.time_ms, live=self._sessions.live)
        match command:
            case JoinClassic():
                return self._join(moment, command)
            case EndPhase():
                return self._end_phase(moment, command)
            case AssignClassic():
                found = self.classic(command.group)
                return Denied(code=GroupCode.UNKNOWN_MEMBER) if found is None else found.assign(moment, command)
            case Beat():
                return self._beat(moment, command)
            case SetTopics() | SetTarget():
                return self._kept(moment, command)
            case RemoveMembers():
                return self._remove(moment, command)
            case Rehome():
                return self._rehome(moment, command)
            case DropGroup():
                return self._drop(step, command)
            case _:
                return stray(command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Members outlive the broker that heard them: it would take a row for each to say that it is gone."""

    def judge_commit(self, step: Step, command: CommitOffsets) -> GroupCode:
        """Whether a group takes a commit (G9)."""
        found = self.all.get(command.group)
        if found is None:
            return self.may_commit(command)
        return found.commit(Moment(step=step, time_ms=self._timeline.time_ms, live=self._sessions.live), command)

    def may_commit(self, command: CommitOffsets) -> GroupCode:
        """Whether a group would take a commit now; nothing is changed."""
        found = self.all.get(command.group)
        if found is not None:
            return found.may_commit(command)
        if command.generation < 0:
            return GroupCode.ACCEPTED
        return GroupCode.UNKNOWN_MEMBER if self._offsets.has(command.group) else GroupCode.UNKNOWN_GROUP

    def revision(self, group: str) -> int:
        """By which a group is named that was looked at; 0: it has no members, and never had any."""
        found = self.all.get(group)
        return 0 if found is None else found.revision

    def _join(self, moment: Moment, command: JoinClassic) -> Verdict:
        found = self.all.get(command.group)
        if isinstance(found, ClassicGroup):
            return found.join(moment, command)
        if found is not None and not found.is_empty:
            return Denied(code=GroupCode.OTHER_KIND)
        if not command.new:
            return Denied(code=GroupCode.UNKNOWN_MEMBER)
        went_on = 0 if found is None else found.last_generation  # G1
        group = ClassicGroup(command.group, generation=went_on, since_ms=moment.time_ms)
        verdict = group.join(moment, command)
        if not isinstance(verdict, Denied):
            self.all[command.group] = group
        return verdict

    def _beat(self, moment: Moment, command: Beat) -> Verdict:
        found = self.all.get(command.group)
        if isinstance(found, ConsumerGroup):
            return found.beat(moment, command)
        if command.epoch != 0 or (found is not None and not found.is_empty):
            return Denied(code=GroupCode.UNKNOWN_GROUP)
        went_on = 0 if found is None else found.last_generation  # G1
        group = ConsumerGroup(command.group, epoch=went_on, since_ms=moment.time_ms)
        verdict = group.beat(moment, command)
        if not isinstance(verdict, Denied):
            self.all[command.group] = group
        return verdict

    def _kept(self, moment: Moment, command: SetTopics | SetTarget) -> Verdict:
        """What the keeper of a consumer group says."""
        found = self.consumer(command.group)
        if found is None:
            return refused(Why.STALE, "the group is gone")
        if isinstance(command, SetTopics):
            return found.set_topics(moment, command)
        return found.set_target(moment, command)

    def _end_phase(self, moment: Moment, command: EndPhase) -> Verdict:
        found = self.classic(command.group)
        if found is None or not found.end_phase(moment, command.tick):
            return refused(Why.STALE, "the phase is over")
        return DONE

    def _remove(self, moment: Moment, command: RemoveMembers) -> Verdict:
        found = self.all.get(command.group)
        if found is None:
            return Removed(codes=(GroupCode.UNKNOWN_MEMBER,) * len(command.rows))
        return Removed(codes=found.remove(moment, command))

    def _rehome(self, moment: Moment, command: Rehome) -> Verdict:
        found = self.all.get(command.group)
        if found is None:
            return Rehomed(codes=(GroupCode.UNKNOWN_MEMBER,) * len(command.members))
        return Rehomed(codes=tuple(found.rehome(moment, member) for member in command.members))

    def _drop(self, step: Step, command: DropGroup) -> Verdict:
        found = self.all.get(command.group)
        has_offsets = self._offsets.has(command.group)
        if found is None and not has_offsets:
            return Denied(code=GroupCode.UNKNOWN_GROUP)
        if command.revision >= 0:
            idle = found is not None and found.is_idle and not has_offsets
            if found is None or not idle or found.revision != command.revision:
                return Denied(code=GroupCode.MOVED)
        elif found is not None and not found.is_empty:
            return Denied(code=GroupCode.NOT_EMPTY)
        self.all.pop(command.group, None)
        self._offsets.drop(command.group)
        step.groups.append(command.group)
        return GroupDropped()

    def cap_times(self, latest_ms: int) -> None:
        """Let no group have changed later than a time: for a log that begins anew."""
        for group in self.all.values():
            group.since_ms = min(group.since_ms, latest_ms)

    def forget_positions(self) -> None:
        """Views of topics are as old as can be: for a catalog that begins anew."""
        for group in self.all.values():
            if isinstance(group, ConsumerGroup):
                group.topics.forget_positions()

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.all)])
        for name, group in sorted(self.all.items()):
            out.values([name, group.kind])
            group.dump(out)

    def load(self, source: Reader, version: int) -> None:
        (groups,) = source.ints(1)
        for _ in range(groups):
            head = source.row()
            name, kind = head.text(), head.text()
            self.all[name] = _LOADERS[kind](name, source)

    def show(self, prefix: str) -> Listing:
        shown = ((GROUP_KEY.build(name), group.show()) for name, group in self.all.items())
        return iter(sorted(shown, key=lambda item: item[0]))

    def __iter__(self) -> Iterator[Group]:
        return iter(self.all.values())


def _load_classic(name: str, source: Reader) -> Group:
    group = ClassicGroup(name)
    forms.load(group, source)
    return group


_LOADERS: Final[Mapping[str, Callable[[str, Reader], Group]]] = {
    ClassicGroup.kind: _load_classic,
    ConsumerGroup.kind: consumer.load,
}
