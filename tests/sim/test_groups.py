"""The checkers of groups find what they are there for, and nothing else."""

import pytest

from dray.machine.groups.beats import SetTarget
from dray.machine.groups.commands import RemovalRow
from dray.machine.groups.reconcile import MemberState
from dray.sim.beliefs import Beliefs
from dray.sim.standings import Standings
from dray.sim.world import Violation, World
from tests.machine.groups.consumers import GROUP, IDS, Client, Scene, target_rows


@pytest.fixture
def world():
    world = World(1)
    yield world
    world.close()


def test_two_members_that_believe_to_own_one_partition_are_found(world):
    """G6"""
    members = {"a", "b"}
    beliefs = Beliefs(world, members.__contains__)
    beliefs.took("a", [1, 2])
    beliefs.took("b", [3])
    beliefs.let_go("a", [2])
    beliefs.took("b", [2])
    with pytest.raises(Violation, match="two members own one partition"):
        beliefs.took("b", [1])


def test_who_was_removed_may_believe_what_it_likes(world):
    """It learns it with its next heartbeat; that it was silent is checked elsewhere."""
    members = {"a", "b"}
    beliefs = Beliefs(world, members.__contains__)
    beliefs.took("a", [1])
    members.remove("a")
    beliefs.took("b", [1])
    beliefs.took("a", [2])
    beliefs.let_go("a")
    members.add("a")
    beliefs.took("a", [2])


def test_an_epoch_that_falls_is_found(world):
    """G1"""
    beliefs = Beliefs(world, lambda member: True)
    beliefs.told_epoch("a", 3)
    beliefs.told_epoch("b", 1)
    with pytest.raises(Violation, match="older epoch"):
        beliefs.told_epoch("a", 2)


def test_a_target_that_leaves_a_partition_out_or_gives_it_twice_is_found(world):
    """G8"""
    scene, standings = Scene(), Standings(world)
    for name in "12":
        scene.join(Client(name))
    for shares, complaint in (((0, 1), "leaves partitions out"), ((0b1111, 0b1000), "twice"), ((0b0011, 0b1100), None)):
        target = {name: {IDS["a"]: share} for name, share in zip("12", shares, strict=True)}
        rows = target_rows(target)
        scene.group.epoch += 1
        scene.brokers[0].do(SetTarget(group=GROUP, epoch=scene.group.epoch, slice=0, last=True, rows=rows))
        if complaint is None:
            standings.check_target(scene.group)
        else:
            with pytest.raises(Violation, match=complaint):
                standings.check_target(scene.group)


def test_an_epoch_that_moves_too_soon_and_a_removal_before_its_time_are_found(world):
    """G7, GS3"""
    scene, standings = Scene(), Standings(world)
    one, two = Client("1"), Client("2")
    scene.join(one)
    scene.settle(one)
    scene.join(two)
    scene.retarget()
    scene.beat(one)
    assert scene.group.members["1"].state is MemberState.UNREVOKED
    standings.look(scene.group)
    with pytest.raises(Violation, match="before it had to let go"):
        standings.check_unrevoked([RemovalRow(member="1")])
    scene.group.members["1"].epoch += 1
    with pytest.raises(Violation, match="an epoch moved"):
        standings.look(scene.group)


def test_a_topic_that_gets_smaller_is_found(world):
    """G8"""
    scene, standings = Scene(), Standings(world)
    scene.join(Client("1"))
    standings.look(scene.group)
    view = scene.group.topics.views["a"]
    scene.group.topics.views["a"] = type(view)(view.id, view.partitions - 1, view.catalog)
    with pytest.raises(Violation, match="went back"):
        standings.look(scene.group)


def test_a_commit_of_who_owned_a_partition_before_is_found(world):
    """G9"""
    beliefs = Beliefs(world, {"a", "b"}.__contains__)
    beliefs.took("a", [1])
    beliefs.committed("a", [1])
    beliefs.committed("b", [2])
    with pytest.raises(Violation, match="past owner"):
        beliefs.committed("b", [1, 2])
