"""Anything, by anyone, in any order, to one classic group."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from dray.machine import checkpoint
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import Assigned, Denied, GroupCode, Joined, PendingJoin, Removed, Waiting
from dray.machine.groups.commands import DropGroup, EndPhase, Rehome, Removal, RemovalRow, RemoveMembers
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.roster import Completing, Empty, Preparing, Stable
from dray.machine.machine import Machine
from dray.machine.names import TopicId
from dray.machine.offsets import CommitOffsets, OffsetRow, OffsetsCommitted
from dray.machine.sessions import Close
from dray.machine.verdict import Refused, Verdict, Why

from ..scribe import Tape, Writer
from .players import GROUP, assigning, joining

EDGES = {
    (Empty, Preparing), (Preparing, Completing), (Preparing, Empty), (Completing, Stable), (Completing, Preparing),
    (Stable, Preparing), (Completing, Completing), (Completing, Empty), (Stable, Completing), (Stable, Empty),
}  # fmt: skip
"""Of one command: it may begin a rebalance and end it."""
PROTOCOLS = [(("range", b"a"),), (("range", b"a"), ("rr", b"b")), (("rr", b"b"), ("range", b"c")), (("rr", b"b"),)]
T = TopicId(b"t" * 16)


class OneGroup(RuleBasedStateMachine):
    """Three brokers that live and die write about a group of a few members, some of them static."""

    @initialize()
    def begin(self) -> None:
        self.tape = Tape(version=2)
        self.writers: dict[int, Writer] = {number: self.tape.open(f"b{number}") for number in range(3)}
        self.names = 0
        self.before: tuple[type[object], int, int, int] | None = None
        self.told: dict[tuple[int, str], bytes] = {}
        self.committed = -1

    # -- who and what ------------------------------------------------------

    @property
    def group(self) -> ClassicGroup | None:
        return self.tape.machine.groups.classic(GROUP)

    def writer(self, data: st.DataObject) -> Writer:
        number = data.draw(st.sampled_from(sorted(self.writers)), label="broker")
        return self.writers[number]

    def member(self, data: st.DataObject) -> str:
        group = self.group
        known = [*group.members, *group.pending] if group is not None else []
        return data.draw(st.sampled_from([*known, *known, "stranger", ""]), label="member")

    def happen(self, writer: Writer, command) -> Verdict:
        group = self.group
        self.before = None if group is None else (type(group.state), group.round, group.tick, group.generation)
        verdict = writer.do(command)
        assert not (isinstance(verdict, Refused) and verdict.why is Why.INTERNAL), verdict
        return verdict

    # -- calls ---------------------------------------------------------------

    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS), must_know=st.booleans(), delay=st.integers(0, 3))
    def somebody_new_joins(self, data, protocols, must_know, delay) -> None:
        self.names += 1
        member = f"m{self.names}"
        instance = data.draw(st.sampled_from([None, None, "i1", "i2"]), label="instance")
        writer = self.writer(data)
        verdict = self.happen(
            writer,
            joining(
                member, instance=instance, protocols=protocols, must_know=must_know, delay_ms=delay, rebalance_ms=10,
                max_size=data.draw(st.sampled_from([2, 1_000]), label="size"),
            ),
        )  # fmt: skip
        match verdict:
            case PendingJoin():
                assert self.group.pending[MemberId(member)].home == writer.session  # G5
            case Waiting() | Joined():
                assert self.group.members[MemberId(member)].home == writer.session  # G5
            case Denied(code=code):
                assert code in (GroupCode.FULL, GroupCode.OTHER_PROTOCOL)
            case _:
                raise AssertionError(verdict)

    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def a_member_joins_again(self, data, protocols) -> None:
        member = self.member(data)
        group = self.group
        known = group.members.get(MemberId(member)) if group else None
        same = data.draw(st.booleans(), label="same")
        verdict = self.happen(
            self.writer(data),
            joining(
                member, new=False, instance=known.instance if known else None, rebalance_ms=10,
                protocols=known.protocols if known and same else protocols,
            ),
        )  # fmt: skip
        assert isinstance(verdict, Waiting | Joined | Denied)

    @rule(data=st.data())
    def somebody_syncs(self, data) -> None:
        group = self.group
        if group is None:
            return
        leader = [group.leader] * 3 if group.leader else []
        member = data.draw(st.sampled_from([*leader, *group.members, "stranger"]), label="member")
        known = group.members.get(MemberId(member))
        generation = group.generation + data.draw(st.sampled_from([0, 0, 0, -1, 1]), label="off by")
        given = {name: f"{name} {generation}".encode() for name in group.members}
        verdict = self.happen(
            self.writer(data),
            assigning(
                member, generation, given, instance=known.instance if known else None, protocol=group.protocol
            ),
        )  # fmt: skip
        if isinstance(verdict, Assigned):
            assert generation == group.generation
            known_answer = self.told.setdefault((generation, str(member)), verdict.assignment)
            assert verdict.assignment == known_answer  # G2

    @rule(data=st.data())
    def somebody_commits(self, data) -> None:
        group = self.group
        member = self.member(data)
        generation = (group.generation if group else 0) + data.draw(st.sampled_from([0, 0, -1, 1]), label="off by")
        known = group.members.get(MemberId(member)) if group else None
        row = OffsetRow(topic_id=T, partition=0, offset=self.names)
        command = CommitOffsets(
            group=GROUP, rows=(row,), generation=generation, member=member,
            instance=known.instance if known else None,
        )  # fmt: skip
        verdict = self.happen(self.writer(data), command)
        if isinstance(verdict, OffsetsCommitted):
            in_generation = group is not None and known is not None and generation == group.generation
            assert in_generation or (generation < 0 and (group is None or group.is_empty))  # G9
            assert group is None or not isinstance(group.state, Completing)

    @rule(data=st.data())
    def somebody_leaves(self, data) -> None:
        member = self.member(data)
        known = self.group.members.get(MemberId(member)) if self.group else None
        row = RemovalRow(member=MemberId(member), instance=known.instance if known else InstanceId("i1"))
        self.happen(self.writer(data), RemoveMembers(group=GROUP, reason=Removal.LEFT, rows=(row,)))

    # -- timers, of the right broker and of wrong ones ---------------------------

    @rule(data=st.data(), late=st.sampled_from([0, 0, 0, 1]))
    def a_phase_ends(self, data, late) -> None:
        if self.group is not None:
            self.happen(self.writer(data), EndPhase(group=GROUP, tick=max(0, self.group.tick - late)))
            assert not late or self.before[2] == self.group.tick

    @rule(data=st.data(), reason=st.sampled_from([Removal.EXPIRED, Removal.PENDING, Removal.UNSYNCED]))
    def somebody_is_said_to_be_silent(self, data, reason) -> None:
        member = MemberId(self.member(data))
        group = self.group
        held = None if group is None else group.members.get(member) or group.pending.get(member)
        sessions = [writer.session for writer in self.writers.values()]
        home = data.draw(st.sampled_from([held.home if held else 0, *sessions]), label="home")
        waits = group is not None and member in group.members and group.waits(group.members[member])
        writer = self.writer(data)
        live = self.tape.machine.sessions.live
        row = RemovalRow(member=member, home=home, since=group.generation if group else 0)
        verdict = self.happen(writer, RemoveMembers(group=GROUP, reason=reason, rows=(row,)))
        if isinstance(verdict, Removed) and verdict.codes[0] is GroupCode.ACCEPTED:
            assert held.home == home
            assert home == writer.session or home not in live
            assert not waits or reason is Removal.PENDING

    @rule(data=st.data())
    def a_member_is_heard_elsewhere(self, data) -> None:
        member, writer = MemberId(self.member(data)), self.writer(data)
        self.happen(writer, Rehome(group=GROUP, members=(member,)))
        if self.group is not None and member in self.group.members:
            assert self.group.members[member].home == writer.session  # G5

    @rule(data=st.data())
    def a_broker_starts_again(self, data) -> None:
        number = data.draw(st.sampled_from(sorted(self.writers)), label="broker")
        before = {} if self.group is None else {name: one.home for name, one in self.group.members.items()}
        self.happen(self.writers[number], Close())
        self.writers[number] = self.tape.open(f"b{number}")
        assert before == ({} if self.group is None else {name: one.home for name, one in self.group.members.items()})

    @rule(data=st.data(), exact=st.booleans())
    def the_group_is_dropped(self, data, exact) -> None:
        was = self.group
        revision = was.revision if was is not None and exact else -1
        self.happen(self.writer(data), DropGroup(group=GROUP, revision=revision))
        if self.group is None:
            assert was is None or was.is_empty
            self.told.clear()

    @rule()
    def a_replica_loads_a_checkpoint(self) -> None:
        """The order of members decides who leads next: a loaded group must be the same group."""
        self.tape.machine = checkpoint.load(checkpoint.dump(self.tape.machine))

    # -- what always holds -------------------------------------------------------

    @invariant()
    def it_moves_along_its_edges_and_never_back(self) -> None:
        """G1"""
        group = self.group
        if group is None or self.before is None:
            return
        state, round_, tick, generation = self.before
        assert group.round >= round_
        assert group.tick >= tick
        assert group.generation >= generation
        if state is not type(group.state):
            assert (state, type(group.state)) in EDGES
        self.before = None

    @invariant()
    def its_parts_agree(self) -> None:
        """G3"""
        group = self.group
        if group is None:
            return
        waiting = [one for one in group.members.values() if group.waits(one)]
        assert group.awaiting == len(waiting)
        assert all(one.joined in (0, group.round) or not isinstance(group.state, Preparing) or one.joined < group.round
                   for one in group.members.values())  # fmt: skip
        assert {one.instance: name for name, one in group.members.items() if one.instance} == group.statics
        names = [name for one in group.members.values() for name in dict.fromkeys(name for name, _ in one.protocols)]
        assert {name: names.count(name) for name in names} == group.support
        assert isinstance(group.state, Empty) <= (not group.members)
        assert (group.leader is None) == (not group.members) or isinstance(group.state, Preparing)
        assert not group.leader or group.leader in group.members
        if isinstance(group.state, Completing | Stable):
            assert group.protocol is not None
            assert group.support[group.protocol] == len(group.members)
            assert not group.awaiting
        if isinstance(group.state, Preparing) and not group.state.initial:
            assert group.members
            assert group.pending or group.awaiting < len(group.members)

    def teardown(self) -> None:
        if not hasattr(self, "tape"):
            return
        replayed = Machine()
        for position, raw in self.tape.entries:
            replayed.apply(position, raw)
        assert checkpoint.dump(replayed) == checkpoint.dump(self.tape.machine)


@pytest.mark.slow
def test_no_sequence_of_commands_breaks_a_group() -> None:
    """G1, G2, G3, G4, G5, G9"""
    run_state_machine_as_test(OneGroup, settings=settings(max_examples=60, stateful_step_count=60, deadline=None))
