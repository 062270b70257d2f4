"""The rules of classic groups, one by one."""

import pytest

from dray.machine.groups import told
from dray.machine.groups.codes import (
    Assigned,
    Denied,
    GroupCode,
    GroupDropped,
    Joined,
    PendingJoin,
    Rehomed,
    Removed,
    Waiting,
)
from dray.machine.groups.commands import DropGroup, EndPhase, Rehome, Removal
from dray.machine.groups.names import MemberId
from dray.machine.groups.roster import Completing, Empty, Preparing, Stable
from dray.machine.names import TopicId
from dray.machine.offsets import CommitOffsets, ExpireOffsets, OffsetKey, OffsetReason, OffsetRow, OffsetsCommitted
from dray.machine.sessions import Close
from dray.machine.verdict import DONE, Refused

from .players import GROUP, Stage, assigning, joining, silent

T = TopicId(b"t" * 16)


def commit(generation: int, member: str = "", instance: str | None = None) -> CommitOffsets:
    row = OffsetRow(topic_id=T, partition=0, offset=5)
    return CommitOffsets(group=GROUP, rows=(row,), generation=generation, member=member, instance=instance)


def test_a_first_generation_has_its_members_leader_and_assignments():
    """G1, G2, G3, R-173, K-070, K-077"""
    stage = Stage()
    assert stage.join("a", delay_ms=3_000) == Waiting(member=MemberId("a"))
    assert stage.group.state == Preparing(initial=True, delay_ms=3_000, left_ms=57_000)
    assert stage.join("b") == Waiting(member=MemberId("b"))
    assert told.join_outcome(stage.group, MemberId("a"), None) is None
    assert stage.end_phase() == DONE
    assert stage.group.state == Preparing(initial=True, delay_ms=3_000, left_ms=54_000), "b came: it is extended"
    assert stage.end_phase() == DONE
    assert stage.group.state == Completing()
    told_leader = told.join_outcome(stage.group, MemberId("a"), None)
    assert isinstance(told_leader, Joined)
    assert (told_leader.generation, told_leader.leader, len(told_leader.members)) == (1, "a", 2)
    told_other = told.join_outcome(stage.group, MemberId("b"), None)
    assert isinstance(told_other, Joined)
    assert told_other.members == ()
    assert told.sync_outcome(stage.group, MemberId("b"), None, 1) is None
    assert stage.assign("a", {"a": b"1", "b": b"2"}) == Assigned(assignment=b"1")
    assert stage.group.state == Stable()
    assert told.sync_outcome(stage.group, MemberId("b"), None, 1) == b"2"
    assert stage.assign("b", {"b": b"other"}) == Assigned(assignment=b"2"), "stored is stored"


def test_a_timer_of_the_past_ends_nothing():
    """G3"""
    stage = Stage()
    stage.join("a")
    old = stage.group.tick
    stage.end_phase()
    stage.assign("a")
    assert isinstance(stage.broker.do(EndPhase(group=GROUP, tick=old)), Refused)
    assert stage.group.state == Stable()


def test_a_tick_of_a_group_that_was_dropped_means_nothing_to_its_successor():
    """G1, G3"""
    stage = Stage()
    stage.join("a")
    old = stage.group.tick
    stage.leave("a")
    stage.end_phase()
    assert stage.broker.do(DropGroup(group=GROUP)) == GroupDropped()
    stage.join("a")
    assert stage.group.tick > old
    assert isinstance(stage.broker.do(EndPhase(group=GROUP, tick=old)), Refused)


def test_whoever_comes_waits_for_the_others_and_who_is_late_is_dropped():
    """G3, K-072"""
    stage = Stage()
    stage.stable("a", "b")
    stage.join("c")
    assert stage.group.state == Preparing()
    stage.join("a", new=False)
    assert told.beaten(stage.group, MemberId("b"), None, 2) is GroupCode.OTHER_GENERATION
    assert told.beaten(stage.group, MemberId("b"), None, 1) is GroupCode.REBALANCING
    stage.end_phase()
    assert (list(stage.group.members), stage.group.generation) == (["a", "c"], 2)
    assert told.join_outcome(stage.group, MemberId("b"), None) is GroupCode.UNKNOWN_MEMBER


def test_a_given_id_holds_up_the_join_until_it_comes_or_goes():
    """G3, G4"""
    stage = Stage(brokers=2)
    stage.stable("a")
    assert stage.join("p", must_know=True, by=1) == PendingJoin(member=MemberId("p"))
    stage.join("a", new=False, protocols=(("range", b"other"),))
    assert stage.group.state == Preparing()
    home = stage.brokers[1].session
    assert stage.broker.do(silent("p", home, Removal.PENDING)) == Removed(codes=(GroupCode.MOVED,))
    assert stage.brokers[1].do(silent("p", home, Removal.PENDING)) == Removed(codes=(GroupCode.ACCEPTED,))
    assert stage.group.state == Completing()


def test_silence_counts_only_on_the_word_of_the_home_or_once_it_has_ended():
    """G4, G5, R-169"""
    stage = Stage(brokers=3)
    stage.stable("a", "b")
    home, other = stage.brokers[0].session, stage.brokers[1].session
    moved = Removed(codes=(GroupCode.MOVED,))
    assert stage.brokers[1].do(silent("a", home)) == moved, "a live home speaks for itself"
    assert stage.brokers[1].do(silent("a", other)) == moved, "not its home"
    assert stage.brokers[1].do(Rehome(group=GROUP, members=(MemberId("a"),))) == Rehomed(codes=(GroupCode.ACCEPTED,))
    assert stage.brokers[0].do(silent("a", home)) == moved, "it is heard elsewhere now"
    stage.brokers[1].send(Close())
    assert stage.brokers[2].do(silent("a", home)) == moved
    assert stage.brokers[2].do(silent("a", other)) == Removed(codes=(GroupCode.ACCEPTED,))
    assert stage.group.state == Preparing()
    assert list(stage.group.members) == ["b"]


def test_nobody_goes_for_silence_who_was_heard_since_that_was_decided():
    """G10: a commit that was under way shows that it lives, and it may have been answered by then."""
    stage = Stage()
    stage.stable("a")
    home, seen = stage.broker.session, stage.tape.machine.position
    stage.broker.do(Rehome(group=GROUP, members=("a",)))
    assert stage.broker.do(silent("a", home, seen=seen)) == Removed(codes=(GroupCode.MOVED,))
    assert stage.broker.do(silent("a", home, seen=stage.tape.machine.position)) == Removed(codes=(GroupCode.ACCEPTED,))


def test_who_waits_in_the_round_is_not_silent():
    """G4"""
    stage = Stage()
    stage.stable("a", "b")
    stage.join("a", new=False, protocols=(("range", b"new"),))
    assert stage.broker.do(silent("a", stage.broker.session)) == Removed(codes=(GroupCode.MOVED,))
    assert stage.broker.do(silent("b", stage.broker.session)) == Removed(codes=(GroupCode.ACCEPTED,))
    assert stage.group.state == Completing(), "all that are left have joined"


def test_a_follower_that_never_syncs_goes_by_its_generation():
    """G4"""
    stage = Stage()
    stage.stable("a", "b")
    home, unsynced = stage.broker.session, Removal.UNSYNCED
    assert stage.broker.do(silent("b", home, unsynced, since=0)) == Removed(codes=(GroupCode.MOVED,))
    assert stage.broker.do(silent("b", home, unsynced, since=1)) == Removed(codes=(GroupCode.ACCEPTED,))


def test_a_leader_that_does_not_sync_is_dropped_with_its_phase():
    """G1, G3, K-075"""
    stage = Stage()
    stage.join("a")
    stage.join("b")
    stage.end_phase()
    stage.end_phase()
    stage.end_phase()
    assert stage.group.state == Preparing()
    assert (list(stage.group.members), stage.group.leader) == (["b"], "b")


def test_a_static_member_takes_its_own_place_without_a_rebalance():
    """G2, R-176"""
    stage = Stage()
    stage.join("s1", instance="i")
    stage.end_phase()
    stage.broker.do(assigning("s1", 1, {"s1": b"mine"}, instance="i"))
    again = stage.join("s2", instance="i")
    assert isinstance(again, Joined)
    assert (again.generation, again.leader, again.skip_assignment) == (1, "s2", True)
    assert told.sync_outcome(stage.group, MemberId("s1"), "i", 1) is GroupCode.FENCED_INSTANCE
    assert told.beaten(stage.group, MemberId("s1"), "i", 1) is GroupCode.FENCED_INSTANCE
    assert told.sync_outcome(stage.group, MemberId("s2"), "i", 1) == b"mine"
    old = stage.join("s3", instance="i", tells_leader=False)
    assert isinstance(old, Joined)
    assert (old.leader, old.members, old.skip_assignment) == ("s2", (), False), "an old client must not assign"


def test_static_members_that_are_away_are_waited_for():
    """R-176"""
    stage = Stage()
    stage.join("s", instance="i")
    stage.join("d")
    stage.end_phase()
    stage.end_phase()
    stage.broker.do(assigning("s", 1, {}, instance="i"))
    stage.join("d", new=False, protocols=(("range", b"new"),))
    stage.leave("d")
    tick = stage.group.tick
    assert stage.end_phase() == DONE
    assert stage.group.state == Preparing()
    assert stage.group.tick > tick
    assert stage.group.generation == 1


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ()), ("connect", (("range", b""),))]
)
def test_a_stranger_without_a_common_protocol_is_denied_and_changes_nothing(protocol_type, protocols):
    """R-173"""
    stage = Stage()
    if protocol_type == "connect":
        stage.stable("a")
    denied = stage.join("x", protocol_type=protocol_type, protocols=protocols)
    assert denied == Denied(code=GroupCode.OTHER_PROTOCOL)
    if protocol_type == "connect":
        assert stage.group.generation == 1
    else:
        assert stage.tape.machine.groups.find(GROUP) is None


def test_the_protocol_is_what_most_prefer_of_what_all_have():
    """R-173"""
    stage = Stage()
    stage.join("a", protocols=(("x", b"1"), ("y", b"2"), ("z", b"3")))
    stage.join("b", protocols=(("y", b""), ("z", b"")))
    stage.join("c", protocols=(("z", b""), ("y", b"")))
    stage.end_phase()
    stage.end_phase()
    assert stage.group.protocol == "y"
    leader = told.join_outcome(stage.group, MemberId("a"), None)
    assert isinstance(leader, Joined)
    assert [one.metadata for one in leader.members] == [b"2", b"", b""]


def test_a_group_takes_no_more_than_it_may():
    """R-173"""
    stage = Stage()
    stage.join("a", max_size=1)
    assert stage.join("b", max_size=1) == Denied(code=GroupCode.FULL)
    assert list(stage.group.members) == ["a"]


def test_a_commit_is_taken_from_the_generation_only():
    """G9, R-185"""
    stage = Stage()
    assert stage.broker.do(commit(0, "a")) == Denied(code=GroupCode.UNKNOWN_GROUP)
    committed = stage.broker.do(commit(-1))
    assert isinstance(committed, OffsetsCommitted), "nobody is a member: a simple group"
    assert stage.broker.do(commit(0, "a")) == Denied(code=GroupCode.UNKNOWN_MEMBER)
    stage.join("a")
    assert stage.broker.do(commit(-1)) == Denied(code=GroupCode.UNKNOWN_MEMBER)
    stage.end_phase()
    assert stage.broker.do(commit(1, "a")) == Denied(code=GroupCode.REBALANCING)
    stage.assign("a")
    for generation, member, instance, code in (
        (1, "x", None, GroupCode.UNKNOWN_MEMBER), (0, "a", None, GroupCode.OTHER_GENERATION),
        (2, "a", None, GroupCode.OTHER_GENERATION), (1, "a", "i", GroupCode.UNKNOWN_MEMBER),
        (-1, "a", None, GroupCode.OTHER_GENERATION), (-1, "", None, GroupCode.UNKNOWN_MEMBER),
    ):  # fmt: skip
        assert stage.broker.do(commit(generation, member, instance)) == Denied(code=code)
    assert isinstance(stage.broker.do(commit(1, "a")), OffsetsCommitted)
    stage.join("b")
    assert isinstance(stage.broker.do(commit(1, "a")), OffsetsCommitted), "who must give up its work may say how far"


def test_an_empty_group_takes_commits_from_anyone_without_a_generation():
    """G9, R-185"""
    stage = Stage()
    stage.join("p", must_know=True)
    assert isinstance(stage.broker.do(commit(-1, "p")), OffsetsCommitted)
    assert isinstance(stage.broker.do(commit(-1, "stranger")), OffsetsCommitted)


def test_a_commit_brings_its_member_home():
    """G5"""
    stage = Stage(brokers=2)
    stage.stable("a")
    stage.brokers[1].do(commit(1, "a"))
    assert stage.group.members[MemberId("a")].home == stage.brokers[1].session


def test_offsets_of_a_group_that_moved_on_do_not_expire():
    """C2"""
    stage = Stage()
    stage.broker.do(commit(-1))
    position = stage.tape.machine.offsets.find(GROUP, T, 0).commit_position
    key = OffsetKey(topic_id=T, partition=0, commit_position=position)
    expire = ExpireOffsets(group=GROUP, reason=OffsetReason.DELETED, rows=(key,), revision=0)
    stage.join("a")
    assert isinstance(stage.broker.do(expire), Refused)
    assert stage.tape.machine.offsets.has(GROUP)


def test_only_an_empty_group_is_dropped_with_all_its_offsets_and_its_name_is_free():
    """R-178"""
    stage = Stage()
    assert stage.broker.do(DropGroup(group=GROUP)) == Denied(code=GroupCode.UNKNOWN_GROUP)
    stage.stable("a")
    stage.broker.do(commit(1, "a"))
    assert stage.broker.do(DropGroup(group=GROUP)) == Denied(code=GroupCode.NOT_EMPTY)
    stage.leave("a")
    assert stage.group.state == Empty()
    revision = stage.group.revision
    assert stage.broker.do(DropGroup(group=GROUP, revision=revision)) == Denied(code=GroupCode.MOVED), "it has offsets"
    assert stage.broker.do(DropGroup(group=GROUP)) == GroupDropped()
    assert stage.tape.machine.groups.names() == []
    assert stage.tape.machine.offsets.bytes == 0


def test_a_sweeper_drops_a_group_only_as_it_saw_it():
    """C3"""
    stage = Stage()
    stage.stable("a")
    stage.leave("a")
    revision = stage.group.revision
    stage.join("p", must_know=True)
    assert stage.broker.do(DropGroup(group=GROUP, revision=revision)) == Denied(code=GroupCode.MOVED)
    stage.leave("p")
    assert stage.broker.do(DropGroup(group=GROUP, revision=stage.group.revision)) == GroupDropped()


def test_a_join_with_an_id_that_nobody_gave_is_unknown():
    """R-173"""
    stage = Stage()
    assert stage.broker.do(joining("ghost", new=False)) == Denied(code=GroupCode.UNKNOWN_MEMBER)
    assert stage.tape.machine.groups.find(GROUP) is None
