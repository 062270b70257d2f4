"""Whatever targets, words and silences come: a partition has one owner, and epochs wait for revocations."""

from hypothesis import given
from hypothesis import strategies as st

from dray.machine.groups.masks import Masks, held, masks_of
from dray.machine.groups.reconcile import Holding, MemberState, Next, Standing, put, reconcile, release
from dray.machine.names import TopicId

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
BOTH = frozenset((A, B))
MASK = st.integers(0, 15)
MASKS = st.dictionaries(st.sampled_from([A, B]), MASK.filter(bool))


class Group:
    """Three members and what they own together, kept naively beside."""

    def __init__(self) -> None:
        self.members = [Holding() for _ in range(3)]
        self.assignment_epoch = 1
        self.owned: Masks = {}

    def beat(
        self, index: int, said: Masks | None, subscribed: frozenset[TopicId] = BOTH, resubscribed: bool = False
    ) -> Next | None:
        standing = Standing(
            assignment_epoch=self.assignment_epoch, owned=self.owned, subscribed=subscribed, resubscribed=resubscribed
        )  # fmt: skip
        following = reconcile(self.members[index], standing, said)
        if following is not None:
            put(self.members[index], following, self.owned)
        self.check()
        return following

    def check(self) -> None:
        """G6, by adding up."""
        union: Masks = {}
        for member in self.members:
            for runs in (member.assigned, member.revoking):
                for topic, parts in runs.items():
                    mask = held(parts)
                    assert mask
                    assert sum(part.bit_count() for _, part in parts) == mask.bit_count()
                    assert not union.get(topic, 0) & mask
                    union[topic] = union.get(topic, 0) | mask
        assert union == self.owned


STEPS = st.one_of(
    st.tuples(st.just("target"), st.tuples(MASKS, MASKS, MASKS)),
    st.tuples(st.just("says all"), st.integers(0, 2)),
    st.tuples(st.just("is silent"), st.integers(0, 2)),
    st.tuples(st.just("acknowledges"), st.integers(0, 2)),
    st.tuples(st.just("says something"), st.tuples(st.integers(0, 2), MASKS)),
    st.tuples(st.just("resubscribes"), st.tuples(st.integers(0, 2), st.frozensets(st.sampled_from([A, B])))),
    st.tuples(st.just("leaves"), st.integers(0, 2)),
)


@given(st.lists(STEPS, max_size=40))
def test_a_partition_has_one_owner_whatever_targets_overlap(steps: list[tuple[str, object]]) -> None:
    """G6, G7: also where targets overlap, members lie, say nothing, change their topics or go."""
    group = Group()
    for step in steps:
        match step:
            case "target", (first, second, third):
                group.assignment_epoch += 1
                for member, target in zip(group.members, (first, second, third), strict=True):
                    member.target = target
            case "leaves", int(index):
                release(group.members[index], group.owned)
                group.members[index] = Holding()
                group.check()
            case "resubscribes", (int(index), frozenset() as topics):
                _judged(group, index, None, topics, True)
            case "says all", int(index):
                member = group.members[index]
                topics = member.assigned.keys() | member.revoking.keys()
                _judged(group, index, {
                    topic: held((*member.assigned.get(topic, ()), *member.revoking.get(topic, ()))) for topic in topics
                })  # fmt: skip
            case "is silent", int(index):
                _judged(group, index, None)
            case "acknowledges", int(index):
                _judged(group, index, masks_of(group.members[index].assigned))
            case "says something", (int(index), dict() as said):
                _judged(group, index, said)


def _judged(
    group: Group, index: int, said: Masks | None, subscribed: frozenset[TopicId] = BOTH, resubscribed: bool = False
) -> None:
    """One heartbeat, and whether its epoch was allowed to move (G7)."""
    member = group.members[index]
    epoch, revoking = member.epoch, masks_of(member.revoking)
    waits = member.state is MemberState.UNREVOKED
    following = group.beat(index, said, subscribed, resubscribed)
    if following is None:
        return
    assert following.epoch in (epoch, group.assignment_epoch)
    if following.epoch != epoch and waits and revoking:
        assert said is not None
        assert not any(said.get(topic, 0) & mask for topic, mask in revoking.items())
    if following.state is MemberState.UNREVOKED:
        assert following.epoch == epoch
    if said is None and following.epoch != epoch:
        assert not waits or not revoking


def test_members_come_to_disjoint_targets_by_heartbeats_alone() -> None:
    """R-179: revoke, acknowledge, assign; nobody is given what another still reports."""
    group = Group()
    one, other, _ = group.members
    one.target = {A: 0b1111}
    assert group.beat(0, {}) is not None
    assert masks_of(one.assigned) == {A: 0b1111}

    group.assignment_epoch = 2
    one.target, other.target = {A: 0b0011}, {A: 0b1100}
    group.beat(1, {})
    assert (other.state, other.epoch, other.assigned) == (MemberState.UNRELEASED, 2, {})
    group.beat(0, None)
    assert (one.state, one.epoch, masks_of(one.assigned)) == (MemberState.UNREVOKED, 1, {A: 0b0011})
    group.beat(1, {})
    assert other.assigned == {}
    group.beat(0, {A: 0b0011})
    assert (one.state, one.epoch) == (MemberState.STABLE, 2)
    group.beat(1, {})
    assert (other.state, masks_of(other.assigned)) == (MemberState.STABLE, {A: 0b1100})
    assert other.assigned[A] == ((2, 0b1100),)


def test_what_comes_back_while_it_is_revoked_is_nobody_elses() -> None:
    """G6: a partition that waits for its own revocation may return to its member, and to no one before."""
    group = Group()
    one = group.members[0]
    one.target = {A: 1}
    group.beat(0, {})
    group.assignment_epoch = 2
    one.target = {}
    group.beat(0, None)
    assert one.state is MemberState.UNREVOKED
    group.assignment_epoch = 3
    one.target = {A: 1}
    group.beat(0, {A: 1})
    assert (one.state, one.epoch) == (MemberState.UNREVOKED, 1), "it has not said that it let go"
    group.beat(0, {})
    assert (one.state, one.epoch, one.assigned) == (MemberState.STABLE, 3, {A: ((3, 1),)})


def test_topics_no_longer_subscribed_go_before_a_new_target_is_known() -> None:
    group = Group()
    one = group.members[0]
    one.target = {A: 1, B: 1}
    group.beat(0, {})
    group.beat(0, {A: 1, B: 1}, frozenset((A,)), resubscribed=True)
    assert (one.state, masks_of(one.assigned), masks_of(one.revoking)) == (MemberState.UNREVOKED, {A: 1}, {B: 1})
    group.beat(0, {A: 1}, frozenset((A,)))
    assert (one.state, group.owned) == (MemberState.STABLE, {A: 1})


def test_a_change_remembers_the_epoch_before_it_also_when_the_epoch_stays() -> None:
    group = Group()
    one = group.members[0]
    one.target = {A: 3}
    group.beat(0, {})
    assert (one.previous, one.epoch) == (0, 1)
    group.assignment_epoch = 2
    one.target = {A: 1}
    group.beat(0, None)
    assert (one.previous, one.epoch) == (1, 1)
