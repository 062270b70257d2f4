"""A consumer group (KIP-848): the server decides who owns what, and members come to it one heartbeat at a time.

    epoch             moves with members, subscriptions and topics
    assignment epoch  the epoch for which there is a target
    a member's epoch  the assignment epoch that it has reached

    Empty       no members
    Assigning   epoch > assignment epoch: whoever keeps the group computes a target
    Reconciling somebody has not reached the assignment epoch, or waits for others
    Stable

`apply` of a heartbeat moves its own member and nobody else; what that may
take from others is decided by `reconcile`. Targets, topics and the matches of
patterns come as data, so no rule here knows an assignor or a catalog.

Epochs never fall, over conversions too (G1); homes are set as everywhere (G5).
"""

from collections.abc import Mapping
from typing import ClassVar

from dray.machine.groups import consumer_forms
from dray.machine.groups.beats import Beat, Beaten, SetTarget, SetTopics
from dray.machine.groups.codes import Denied, GroupCode
from dray.machine.groups.commands import Removal, RemovalRow, RemoveMembers
from dray.machine.groups.group import Moment, is_late
from dray.machine.groups.masks import Masks, from_bytes, held, masks_of, unpack
from dray.machine.groups.members import AWAY, ConsumerMember, Draft, Membership
from dray.machine.groups.names import MemberId
from dray.machine.groups.reconcile import MemberState, Next, put, reconcile
from dray.machine.groups.removal import may_judge
from dray.machine.names import TopicId
from dray.machine.noun import Fields
from dray.machine.offsets import CommitOffsets
from dray.machine.packing import Reader, Writer
from dray.machine.verdict import DONE, Verdict, Why, refused


class ConsumerGroup(Membership):
    """A consumer group and its rules."""

    __slots__ = ()
    kind: ClassVar[str] = "consumer"

    # -- heartbeats ----------------------------------------------------------

    def beat(self, moment: Moment, command: Beat) -> Verdict:
        """Judge a heartbeat, and bring its member nearer to its target."""
        said = None if command.owned is None else {row.topic_id: from_bytes(row.mask) for row in command.owned}
        refusal = self._judge(command, said)
        if refusal is not None:
            return Denied(code=refusal)
        was_empty = self.is_empty
        member, moved = self._admit(command)
        moment.welcome(self.id, member)
        resubscribed, otherwise = self._merge(member, command)
        moved |= otherwise
        for row in command.topics:
            moved |= self.topics.see(row.name, row.topic_id, row.partitions, command.catalog)
        if moved:
            self._advance_epoch(moment)
        if moved or resubscribed or was_empty:
            self.revision = moment.position
            if was_empty:
                self.since_ms = moment.time_ms
        before = masks_of(member.assigned)
        following = reconcile(member, self.standing(member, resubscribed=resubscribed), said)
        if following is not None:
            self._put(moment, member, following)
        return self._beaten(moment, member, command, before)

    def _judge(self, command: Beat, said: Masks | None) -> GroupCode | None:
        """Why a heartbeat is refused; nothing is changed."""
        if command.member not in self.members and len(self.members) >= command.max_size:
            return GroupCode.FULL
        holder = None if command.instance is None else self.statics.get(command.instance)
        spoken_for = (self.members.get(name) for name in (command.member, holder) if name is not None)
        if any(one is not None and is_late(one, command.seen) for one in spoken_for):
            return GroupCode.MOVED  # G10
        if command.epoch == 0:
            taken = holder is not None and holder != command.member and self.members[holder].epoch != AWAY
            return GroupCode.UNRELEASED_INSTANCE if taken else None
        if command.instance is not None and holder is None:
            return GroupCode.UNKNOWN_MEMBER
        if holder is not None and holder != command.member:
            return GroupCode.FENCED_INSTANCE
        member = self.members.get(command.member)
        if member is None:
            return GroupCode.UNKNOWN_MEMBER
        if command.epoch == member.epoch:
            return None
        missed_one_answer = (
            command.epoch == member.previous
            and command.epoch < member.epoch
            and said is not None
            and not command.alien
            and _is_subset(said, member)
        )
        return None if missed_one_answer else GroupCode.FENCED_EPOCH

    def _admit(self, command: Beat) -> tuple[ConsumerMember, bool]:
        """The member of an accepted heartbeat: known, new, or a static one that comes back under another id; and
        whether another member is gone by that."""
        member, merged = self.members.get(command.member), False
        holder = None if command.instance is None else self.statics.get(command.instance)
        if holder is not None and holder != command.member:
            if member is not None:
                self.forget(member)  # what it held under its own name is free now
                merged = True
            member = self.members.pop(holder)
            member.id, member.epoch, member.previous = command.member, 0, 0
        elif member is None:
            member = ConsumerMember(id=command.member)
            self.topics.add(member.names, member.regex)
        elif member.epoch == AWAY:
            member.epoch = member.previous = 0
        self.members[member.id] = member
        if command.instance is not None:
            if member.instance is not None and member.instance != command.instance:
                del self.statics[member.instance]
            member.instance = command.instance
            self.statics[command.instance] = member.id
        return member, merged

    def _merge(self, member: ConsumerMember, command: Beat) -> tuple[bool, bool]:
        """Take over what the heartbeat says of its member: whether it subscribes other names or another pattern,
        and whether that moves the epoch."""
        member.rack = command.rack if command.rack is not None else member.rack
        member.client_id, member.client_host = command.client_id, command.client_host
        member.rebalance_ms = command.rebalance_ms if command.rebalance_ms >= 0 else member.rebalance_ms
        member.assignor = command.assignor if command.assignor is not None else member.assignor
        names = member.names if command.names is None else tuple(sorted(set(command.names)))
        regex = member.regex if command.regex is None else command.regex
        other_names, other_regex = names != member.names, regex != member.regex
        if not other_names and not other_regex:
            return False, False
        was_resolved = self.topics.is_resolved(member.regex)
        names = self.topics.add(names, regex)
        self.topics.drop(member.names, member.regex)
        member.names, member.regex = names, regex
        return True, other_names or (other_regex and (was_resolved or self.topics.is_resolved(regex)))

    def _put(self, moment: Moment, member: ConsumerMember, following: Next) -> None:
        put(member, following, self.owned)
        moment.step.moved.append(self.id)

    def _beaten(
        self, moment: Moment, member: ConsumerMember, command: Beat, before: Mapping[TopicId, int]
    ) -> Beaten:  # fmt: skip
        after = masks_of(member.assigned)
        says_all = (
            command.rebalance_ms >= 0
            and (command.names is not None or command.regex is not None)
            and command.owned is not None
        )
        return Beaten(
            epoch=member.epoch, position=moment.position, assigned=tuple(sorted(after.items())),
            sent=command.epoch == 0 or says_all or after != before,
            behind=self.is_behind, settled=self.is_settled(member),
        )  # fmt: skip

    # -- what the keeper proposes --------------------------------------------

    def set_topics(self, moment: Moment, command: SetTopics) -> Verdict:
        """Take over what the catalog says, where it is news (G8)."""
        moved = False
        for row in command.regexes:
            moved |= self.topics.resolve(row.regex, row.names, command.catalog)
        for topic in command.topics:
            moved |= self.topics.see(topic.name, topic.topic_id, topic.partitions, command.catalog)
        if moved:
            self.revision = moment.position
            self._advance_epoch(moment)
        return DONE

    def set_target(self, moment: Moment, command: SetTarget) -> Verdict:
        """Take over a target once it is whole, if the group has not moved on (G8)."""
        if command.epoch != self.epoch or not self.is_behind:
            return refused(Why.STALE, "the group has moved on")
        try:
            rows = [
                (row.member, [(part.topic_id, unpack(part.partitions)) for part in row.parts]) for row in command.rows
            ]
        except ValueError:
            return refused(Why.MALFORMED, "these are no partitions")
        if command.slice == 0:
            self.draft = Draft(session=moment.session, rows={})
        draft = self.draft
        if draft is None or draft.session != moment.session or draft.slices != command.slice:
            return refused(Why.STALE, "another target was begun")
        draft.slices += 1
        for member, parts in rows:
            mine = draft.rows.setdefault(member, {})
            for topic, mask in parts:
                if mask:
                    mine[topic] = mine.get(topic, 0) | mask
        if command.last and not draft.rows.keys() <= self.members.keys():
            self.draft = None
            return refused(Why.STALE, "a member came back under another id")  # G8: its share would be nobody's
        if command.last:
            self._take_over(moment, draft)
        return DONE

    def _take_over(self, moment: Moment, draft: Draft) -> None:
        for name, target in draft.rows.items():
            self.members[name].target = target  # G8
        self.draft = None
        self.assignment_epoch = self.epoch  # G1, G8
        moment.step.groups.append(self.id)

    def _advance_epoch(self, moment: Moment) -> None:
        self.epoch += 1  # G1
        self.draft = None
        moment.step.moved.append(self.id)

    # -- what every group answers --------------------------------------------

    def remove(self, moment: Moment, command: RemoveMembers) -> tuple[GroupCode, ...]:
        codes = []
        gone = False
        for row in command.rows:
            found = self._leaving(moment, command.reason, row)
            if isinstance(found, GroupCode):
                codes.append(found)
                continue
            codes.append(GroupCode.ACCEPTED)
            if command.reason is Removal.AWAY:
                self._go_away(moment, found)
            else:
                self.forget(found)
                gone = True
        if gone:
            self.revision = moment.position
            self._advance_epoch(moment)
            moment.step.groups.append(self.id)
            if self.is_empty:
                self.since_ms = moment.time_ms
        return tuple(codes)

    def _leaving(self, moment: Moment, reason: Removal, row: RemovalRow) -> ConsumerMember | GroupCode:
        """The member that goes, or why it does not (G4)."""
        match reason:
            case Removal.LEFT | Removal.AWAY:
                found = self._named(row)
                late = isinstance(found, ConsumerMember) and is_late(found, row.seen)
                return GroupCode.MOVED if late else found  # G10
            case Removal.EXPIRED | Removal.UNREVOKED:
                member = self.members.get(row.member)
                if member is None:
                    return GroupCode.UNKNOWN_MEMBER
                holds_on = member.state is MemberState.UNREVOKED and member.epoch == row.since
                if reason is Removal.UNREVOKED and not holds_on:
                    return GroupCode.MOVED
                may_go = may_judge(moment, member.home, row.home) and not is_late(member, row.seen)  # G4, G10
                return member if may_go else GroupCode.MOVED
            case _:
                return GroupCode.MOVED

    def _named(self, row: RemovalRow) -> ConsumerMember | GroupCode:
        if row.instance is not None:
            holder = self.statics.get(row.instance)
            if holder is None:
                return GroupCode.UNKNOWN_MEMBER
            if row.member and holder != row.member:
                return GroupCode.FENCED_INSTANCE
            return self.members[holder]
        return self.members.get(row.member, GroupCode.UNKNOWN_MEMBER)

    def _go_away(self, moment: Moment, member: ConsumerMember) -> None:
        """A static member will be back: what it has waits for it, what it was to give is free."""
        put(
            member, Next(state=member.state, epoch=AWAY, assigned=member.assigned, revoking={}), self.owned
        )  # fmt: skip
        moment.welcome(self.id, member)
        moment.step.moved.append(self.id)

    def rehome(self, moment: Moment, member: MemberId) -> GroupCode:
        found = self.members.get(member)
        if found is None:
            return GroupCode.UNKNOWN_MEMBER
        moment.welcome(self.id, found)
        return GroupCode.ACCEPTED

    def commit(self, moment: Moment, command: CommitOffsets) -> GroupCode:
        return self.may_commit(command)

    def may_commit(self, command: CommitOffsets) -> GroupCode:
        """A commit of the member's epoch is taken; of an earlier one, for what was its own already then (G9)."""
        if command.generation < 0 and self.is_empty:
            return GroupCode.ACCEPTED
        member = self.members.get(MemberId(command.member))
        if member is None:
            return GroupCode.UNKNOWN_MEMBER
        if not command.knows_epochs:
            return GroupCode.NEEDS_NEWER_API
        if command.generation == member.epoch:
            return GroupCode.ACCEPTED
        if not 0 <= command.generation < member.epoch:
            return GroupCode.STALE_EPOCH
        held_then = all(member.held_since(row.topic_id, row.partition, command.generation) for row in command.rows)
        return GroupCode.ACCEPTED if held_then else GroupCode.STALE_EPOCH  # G9

    def dump(self, out: Writer) -> None:
        consumer_forms.dump(self, out)

    def show(self) -> Fields:
        return consumer_forms.show(self)


def load(name: str, source: Reader) -> ConsumerGroup:
    """A group from a checkpoint."""
    group = ConsumerGroup(name)
    consumer_forms.load(group, source)
    return group


def _is_subset(said: Masks, member: ConsumerMember) -> bool:
    return all(not mask & ~held(member.assigned.get(topic, ())) for topic, mask in said.items())
