"""Consumer groups: heartbeats, epochs, revocations, static members, targets and views."""

from dray.machine.groups.beats import Beaten, RegexRow, SetTarget, TopicRow
from dray.machine.groups.codes import Denied, GroupCode, Removed
from dray.machine.groups.commands import EndPhase, JoinClassic, Removal
from dray.machine.groups.members import ConsumerState
from dray.machine.groups.reconcile import MemberState
from dray.machine.offsets import CommitOffsets, OffsetRow, OffsetsCommitted
from dray.machine.verdict import DONE, Refused, Why

from .consumers import GROUP, IDS, Client, Scene, target_rows, views

A, B = IDS["a"], IDS["b"]


def denied(code: GroupCode) -> Denied:
    return Denied(code=code)


def beaten(scene: Scene, **fields) -> Beaten:
    """Of the last entry."""
    return Beaten(position=scene.machine.position, **fields)


def settled(*clients: Client, names=("a",)) -> Scene:
    scene = Scene()
    for client in clients:
        scene.join(client, names)
    scene.settle(*clients)
    return scene


def test_a_first_join_by_names_makes_epoch_two_and_an_unknown_pattern_leaves_it_at_one():
    scene = Scene()
    assert scene.join(Client("m")) == beaten(scene, epoch=1, assigned=(), sent=True, behind=True, settled=False)
    assert (scene.group.epoch, scene.group.assignment_epoch) == (2, 1)

    other = Scene()
    other.beat(Client("m"), 0, {}, regex="^a", rebalance_ms=1)
    assert (other.group.epoch, other.group.assignment_epoch) == (1, 1)


def test_a_member_gets_its_target_and_is_told_once():
    scene, one = Scene(), Client("m")
    scene.join(one)
    assert scene.retarget() == DONE
    assert scene.beat(one, owned={}) == beaten(
        scene, epoch=2, assigned=((A, 0b1111),), sent=True, behind=False, settled=True
    )
    assert scene.group.state is ConsumerState.STABLE
    told = scene.beat(one)
    assert isinstance(told, Beaten)
    assert not told.sent, "nothing changed, and it was no full request"
    full = scene.beat(one, owned=one.owned, names=("a",), rebalance_ms=5)
    assert isinstance(full, Beaten)
    assert full.sent


def test_partitions_move_only_after_their_owner_let_go():
    """R-179, G7."""
    one, two = Client("1"), Client("2")
    scene = settled(one)
    scene.join(two)
    scene.retarget()
    assert scene.beat(two, owned={}) == beaten(scene, epoch=3, assigned=(), sent=False, behind=False, settled=False)
    told = scene.beat(one)
    assert told == beaten(scene, epoch=2, assigned=((A, 0b0011),), sent=True, behind=False, settled=False)
    assert scene.group.members["1"].state is MemberState.UNREVOKED
    assert scene.beat(two, owned={}).assigned == ()
    assert scene.beat(one, owned={A: 0b0011}).epoch == 3
    assert scene.beat(two, owned={}).assigned == ((A, 0b1100),)
    assert scene.group.state is ConsumerState.STABLE


def test_what_a_client_said_before_it_went_on_elsewhere_lets_nothing_go():
    """G10, G7: in a broker that it has left, its call may still wait while it is given more."""
    one, two = Client("1"), Client("2")
    scene = settled(one)
    scene.join(two)
    scene.retarget()
    scene.beat(two, owned={})
    late = {"epoch": two.epoch, "owned": {}, "at": 1, "seen": scene.machine.position}
    scene.settle(one, two)
    assert two.owned == {A: 0b1100}
    scene.join(Client("0"))
    scene.retarget()
    owned = dict(scene.group.owned)
    assert scene.beat(Client("2"), **late) == denied(GroupCode.MOVED)
    assert (scene.group.owned, scene.group.members["2"].epoch) == (owned, 3), "it still uses what it was given"
    assert scene.leave(two, seen=late["seen"]).codes == (GroupCode.MOVED,)
    assert scene.beat(two, seen=scene.machine.position).assigned == ((A, 0b1000),)


def test_a_late_join_of_a_static_member_does_not_take_the_place_of_its_successor():
    """G10: the third one would be told that the instance is in use."""
    one, two = Client("1", instance="i"), Client("2", instance="i")
    scene = settled(one)
    seen = scene.machine.position
    scene.leave(one, Removal.AWAY)
    assert scene.join(two, seen=seen) == denied(GroupCode.MOVED)
    assert isinstance(scene.join(two, seen=scene.machine.position), Beaten)


def test_nobody_goes_for_silence_who_was_heard_since_that_was_decided():
    """G10, G4"""
    one = Client("1")
    scene = settled(one)
    home, seen = scene.group.members["1"].home, scene.machine.position
    scene.beat(one)
    assert scene.expire(one, home, seen=seen).codes == (GroupCode.MOVED,)
    assert scene.expire(one, home, seen=scene.machine.position).codes == (GroupCode.ACCEPTED,)


def test_epochs_are_checked_and_a_lost_answer_is_forgiven():
    """R-182."""
    one, two = Client("1"), Client("2")
    scene = settled(one)
    scene.join(two)
    scene.retarget()
    scene.beat(one)  # 1 is told to let go of two partitions
    before = one.epoch
    scene.beat(one, owned={A: 0b0011})
    assert scene.beat(one, before, {A: 0b0011}).epoch == before + 1, "the answer was lost"
    assert scene.beat(one, before, {A: 0b0111}) == denied(GroupCode.FENCED_EPOCH)
    assert scene.beat(one, before, {A: 0b0011}, alien=True) == denied(GroupCode.FENCED_EPOCH)
    assert scene.beat(one, before, None) == denied(GroupCode.FENCED_EPOCH)
    assert scene.beat(one, before - 1, {}) == denied(GroupCode.FENCED_EPOCH)
    assert scene.beat(one, before + 2, {}) == denied(GroupCode.FENCED_EPOCH)
    assert scene.beat(Client("stranger"), 1) == denied(GroupCode.UNKNOWN_MEMBER)
    again = scene.join(one)
    assert isinstance(again, Beaten)
    assert again.assigned == ((A, 0b0011),), "a join of a known member is always taken"


def test_a_group_that_is_not_there_or_is_another_kind():
    """R-170."""
    scene, one = Scene(), Client("m")
    assert scene.beat(one, 5, {}) == denied(GroupCode.UNKNOWN_GROUP)
    join = JoinClassic(
        group=GROUP, member="c", new=True, must_know=False, instance=None, client_id="", client_host="",
        session_ms=10_000, rebalance_ms=10_000, protocol_type="consumer", protocols=(("range", b""),), topics=("a",),
        delay_ms=0, max_size=10, tells_leader=False,
    )  # fmt: skip
    scene.brokers[0].do(join)
    assert scene.join(one) == denied(GroupCode.UNKNOWN_GROUP)


def test_an_empty_group_converts_and_its_epochs_go_on():
    """G1, R-170."""
    scene, one = Scene(), Client("m")
    scene.join(one)
    scene.leave(one)
    assert (scene.group.epoch, scene.group.is_empty) == (3, True)
    join = JoinClassic(
        group=GROUP, member="c", new=True, must_know=False, instance=None, client_id="", client_host="",
        session_ms=10_000, rebalance_ms=10_000, protocol_type="consumer", protocols=(("range", b""),), topics=("a",),
        delay_ms=0, max_size=10, tells_leader=False,
    )  # fmt: skip
    scene.brokers[0].do(join)
    classic = scene.machine.groups.classic(GROUP)
    assert classic is not None
    assert classic.generation >= 3
    scene.brokers[0].do(EndPhase(group=GROUP, tick=classic.tick))
    generation = classic.generation
    scene.leave(Client("c"))
    scene.join(one)
    assert scene.group.epoch > generation


def test_a_static_member_comes_back_to_what_it_had():
    one, two = Client("1", "i1"), Client("2")
    scene = settled(one, two)
    had, epoch = one.owned, scene.group.epoch
    assert scene.leave(one, Removal.AWAY) == Removed(codes=(GroupCode.ACCEPTED,))
    assert scene.group.epoch == epoch, "nobody rebalances"
    assert scene.beat(one, one.epoch, {}) == denied(GroupCode.FENCED_EPOCH)
    back = Client("new", "i1")
    assert scene.join(back).assigned == tuple(had.items())
    assert scene.group.epoch == epoch
    assert scene.beat(one, 0, {}, names=("a",)) == denied(GroupCode.UNRELEASED_INSTANCE)
    assert scene.beat(one, one.epoch, {}) == denied(GroupCode.FENCED_INSTANCE)
    assert scene.beat(Client("x", "nobody"), 3, {}) == denied(GroupCode.UNKNOWN_MEMBER)
    again = scene.join(back)
    assert isinstance(again, Beaten), "the same member joins again after a lost answer"


def test_a_dynamic_member_that_takes_over_an_instance_leaves_nothing_behind():
    """G6: what it held under its own name is free."""
    static, other = Client("s", "i"), Client("d")
    scene = settled(static, other)
    scene.leave(static, Removal.AWAY)
    other.instance = "i"
    scene.join(other)
    scene.settle(other)
    assert scene.group.owned == {A: 0b1111}
    assert list(scene.group.members) == ["d"]


def test_only_the_home_or_anyone_after_its_end_says_that_a_member_is_silent():
    """G4, G5."""
    one = Client("1")
    scene = settled(one)
    home = scene.group.members["1"].home
    assert home == scene.brokers[0].session
    assert scene.expire(one, home, at=1) == Removed(codes=(GroupCode.MOVED,)), "the home is alive"
    scene.beat(one, owned=one.owned, at=2)
    assert scene.group.members["1"].home == scene.brokers[2].session
    assert scene.expire(one, home, at=0) == Removed(codes=(GroupCode.MOVED,)), "it was heard elsewhere"
    scene.restart(2)
    assert scene.expire(one, scene.group.members["1"].home, at=1) == Removed(codes=(GroupCode.ACCEPTED,))
    assert scene.group.is_empty


def test_who_does_not_let_go_is_removed_only_while_it_has_not():
    one, two = Client("1"), Client("2")
    scene = settled(one)
    scene.join(two)
    scene.retarget()
    scene.beat(one)
    home = scene.group.members["1"].home
    late = Client("1", epoch=one.epoch)
    scene.beat(one, owned={A: 0b0011})
    assert scene.expire(late, home, reason=Removal.UNREVOKED) == Removed(codes=(GroupCode.MOVED,))
    assert "1" in scene.group.members


def test_a_target_of_an_older_epoch_or_half_a_target_is_not_taken():
    """G8."""
    one, two = Client("1"), Client("2")
    scene = settled(one)
    scene.join(two)
    old = scene.group.epoch
    scene.leave(two)
    assert scene.retarget(epoch=old) == Refused(why=Why.STALE, reason="the group has moved on")

    def cut(number: int, last: bool, at: int, target) -> object:
        rows = target_rows(target)
        return scene.brokers[at].do(SetTarget(group=GROUP, epoch=scene.group.epoch, slice=number, last=last, rows=rows))

    assert cut(0, False, 0, {"1": {A: 0b0001}}) == DONE
    assert cut(0, False, 1, {"1": {A: 0b0010}}) == DONE, "another keeper begins anew"
    assert isinstance(cut(1, True, 0, {"1": {A: 0b1000}}), Refused)
    assert scene.group.is_behind
    assert cut(1, True, 1, {"1": {A: 0b0100}}) == DONE
    assert scene.group.members["1"].target == {A: 0b0110}
    assert isinstance(cut(0, True, 1, {"1": {A: 0b0100}}), Refused), "there is a target for this epoch"


def test_a_target_for_a_member_that_came_back_under_another_id_is_not_taken():
    """G8: what was meant for it would be nobody's, and no epoch tells the keeper (seed groups-consumer/189)."""
    static, other = Client("s", "i"), Client("d")
    scene = settled(static, other)
    before = {name: member.target for name, member in scene.group.members.items()}
    scene.group.epoch += 1  # a view moved, say
    scene.leave(static, Removal.AWAY)
    scene.join(Client("back", "i"))
    rows = target_rows({"s": {A: 0b0111}, "d": {A: 0b1000}})
    target = SetTarget(group=GROUP, epoch=scene.group.epoch, slice=0, last=True, rows=rows)
    assert isinstance(scene.brokers[0].do(target), Refused)
    assert scene.group.is_behind
    assert scene.group.members["back"].target == before["s"]
    assert scene.group.members["d"].target == before["d"]
    rows = target_rows({"back": {A: 0b0111}, "d": {A: 0b1000}})
    assert scene.brokers[0].do(SetTarget(group=GROUP, epoch=scene.group.epoch, slice=0, last=True, rows=rows)) == DONE
    assert scene.group.members["back"].target == {A: 0b0111}


def test_new_partitions_move_the_epoch_and_an_older_view_does_nothing():
    """G8, R-183."""
    one = Client("1")
    scene = settled(one)
    epoch, position = scene.group.epoch, scene.machine.position
    scene.see(TopicRow(name="a", topic_id=A, partitions=6))
    assert scene.group.epoch == epoch + 1
    scene.see(TopicRow(name="a", topic_id=A, partitions=5), catalog=position)
    assert scene.group.topics.views["a"].partitions == 6
    scene.see(TopicRow(name="z", topic_id=B, partitions=5))
    assert "z" not in scene.group.topics.views, "nobody wants it"
    scene.settle(one)
    assert one.owned == {A: 0b111111}
    scene.see(TopicRow(name="a"))
    scene.settle(one)
    assert one.owned == {}


def test_a_pattern_stands_for_nothing_until_it_is_resolved():
    """R-183."""
    scene, one = Scene(), Client("1")
    scene.beat(one, 0, {}, regex="[ab]", rebalance_ms=1)
    assert one.epoch == 1
    scene.see(*views("ab"), regexes=(RegexRow(regex="[ab]", names=("a", "b")),))
    scene.settle(one)
    assert one.owned == {A: 0b1111, B: 0b111}
    two = Client("2")
    epoch = scene.group.epoch
    scene.beat(two, 0, {}, regex="[ab]", rebalance_ms=1)
    assert scene.group.epoch == epoch + 1, "a known pattern counts at once"
    scene.settle(one, two)
    scene.see(*views("a"), regexes=(RegexRow(regex="[ab]", names=("a",)),))
    assert "b" not in scene.group.topics.views
    scene.settle(one, two)
    assert set(one.owned) | set(two.owned) == {A}
    scene.beat(one, owned=one.owned, regex="")
    scene.settle(one, two)
    assert (one.owned, two.owned) == ({}, {A: 0b1111})


def test_an_assignor_alone_moves_no_epoch():
    one = Client("1")
    scene = settled(one)
    epoch = scene.group.epoch
    scene.beat(one, owned=one.owned, assignor="range")
    assert scene.group.epoch == epoch
    assert scene.group.members["1"].assignor == "range"


def test_a_full_group_takes_no_more():
    one = Client("1")
    scene = settled(one)
    assert scene.join(Client("2"), max_size=1) == denied(GroupCode.FULL)
    assert isinstance(scene.join(one, max_size=1), Beaten)


def commit(scene: Scene, member: str, epoch: int, partition: int = 0, **more) -> object:
    row = OffsetRow(topic_id=A, partition=partition, offset=1)
    return scene.brokers[0].do(CommitOffsets(group=GROUP, rows=(row,), generation=epoch, member=member, **more))


def test_a_commit_counts_from_the_epoch_in_which_the_partition_came():
    """G9, R-185, R-190."""
    one, two = Client("1"), Client("2")
    scene = settled(one)
    scene.join(two)
    scene.settle(one, two)
    assert scene.group.epoch == 3
    assert isinstance(commit(scene, "1", 3, partition=3), OffsetsCommitted), "its own epoch: any partition"
    assert isinstance(commit(scene, "1", 2, partition=0), OffsetsCommitted), "it had that one at epoch 2"
    assert commit(scene, "2", 2, partition=2) == denied(GroupCode.STALE_EPOCH)
    assert commit(scene, "1", 2, partition=3) == denied(GroupCode.STALE_EPOCH)
    assert commit(scene, "1", 4) == denied(GroupCode.STALE_EPOCH)
    assert commit(scene, "1", -1) == denied(GroupCode.STALE_EPOCH)
    assert commit(scene, "", -1) == denied(GroupCode.UNKNOWN_MEMBER)
    assert commit(scene, "1", 3, knows_epochs=False) == denied(GroupCode.NEEDS_NEWER_API)
    scene.leave(one)
    scene.leave(two)
    assert isinstance(commit(scene, "", -1), OffsetsCommitted)
    assert commit(scene, "1", 3) == denied(GroupCode.UNKNOWN_MEMBER)


def test_offsets_are_told_to_members_of_the_right_epoch_and_to_those_who_claim_nothing():
    one = Client("1")
    group = settled(one).group
    assert group.may_fetch(None, -1) is GroupCode.ACCEPTED
    assert group.may_fetch("", -1) is GroupCode.UNKNOWN_MEMBER
    assert group.may_fetch("1", one.epoch) is GroupCode.ACCEPTED
    assert group.may_fetch("1", one.epoch - 1) is GroupCode.STALE_EPOCH
