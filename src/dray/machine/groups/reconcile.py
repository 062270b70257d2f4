"""Who may own which partitions now: revoke before assign, as pure bit operations.

A group has a target for each member; a member comes to it step by step. What
leaves it stays its own ("revoking") until it says that it has let go, and what
comes to it is given only when nobody else owns it.

    STABLE      it owns its target of the assignment epoch
    UNREVOKED   it was told to let go of something, and has not said so
    UNRELEASED  it waits for what others still own

`reconcile` decides and changes nothing, so a broker can also ask it whether a
heartbeat would change anything. Keys are opaque: topics here.

Invariants
    G6  What members have assigned and revoking is disjoint, and together it
        is what the group has `owned`, whatever the targets say: a partition
        has one owner.
    G7  A member's epoch moves only to the assignment epoch, and not while it
        may own what it must revoke.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from dray.machine.groups.masks import Masks, Runs, held
from dray.machine.names import TopicId


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


@dataclass(slots=True, kw_only=True)
class Holding:
    """What a member should own, what it owns, and since which epoch."""

    epoch: int = 0
    previous: int = 0
    """Its epoch before its assignment changed last: whoever repeats it has missed one answer."""
    state: MemberState = MemberState.STABLE
    target: Masks = field(default_factory=dict)
    assigned: Runs = field(default_factory=dict)
    revoking: Runs = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What a member's holding becomes."""

    state: MemberState
    epoch: int
    assigned: Runs
    revoking: Runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What decides besides the holding itself."""

    assignment_epoch: int
    owned: Mapping[TopicId, int]
    """What all members own together."""
    subscribed: Container[TopicId]
    """Topics that the member wants now."""
    resubscribed: bool
    """Its subscription changed in this very call."""


def reconcile(member: Holding, standing: Standing, said: Mapping[TopicId, int] | None) -> Next | None:
    """The next holding of a member that says what it owns (none: it does not say); none if nothing changes."""
    match member.state:
        case MemberState.STABLE if member.epoch == standing.assignment_epoch:
            return _strip(member, standing, said) if standing.resubscribed else None
        case MemberState.UNREVOKED if _may_own(member.revoking, said):
            return _strip(member, standing, said) if standing.resubscribed else None  # G7
    following = _advance(member, standing, said)
    return None if _is_same(member, following) else following


def put(member: Holding, following: Next, owned: Masks) -> None:
    """Let a member hold what was decided, and the group know who owns it (G6)."""
    release(member, owned)
    for runs in (following.assigned, following.revoking):
        for topic, parts in runs.items():
            owned[topic] = owned.get(topic, 0) | held(parts)  # G6
    member.previous, member.epoch = member.epoch, following.epoch  # G7; also when equal: the caller has shown it
    member.state = following.state
    member.assigned = following.assigned
    member.revoking = following.revoking


def release(member: Holding, owned: Masks) -> None:
    """Nobody owns what this member holds: it is on its way out, or about to hold something else."""
    for runs in (member.assigned, member.revoking):
        for topic, parts in runs.items():
            left = owned.get(topic, 0) & ~held(parts)  # G6
            if left:
                owned[topic] = left
            else:
                owned.pop(topic, None)


def _is_same(member: Holding, following: Next) -> bool:
    """Whether it changes nothing, not even what counts as a missed answer: a member that waits for others stays so."""
    now = member.state, member.epoch, member.previous, member.assigned, member.revoking
    return now == (following.state, following.epoch, member.epoch, following.assigned, following.revoking)


def _may_own(runs: Runs, said: Mapping[TopicId, int] | None) -> bool:
    """May the member still use any of these? Silence counts as yes."""
    if not runs:
        return False
    return said is None or any(said.get(topic, 0) & held(parts) for topic, parts in runs.items())


def _strip(member: Holding, standing: Standing, said: Mapping[TopicId, int] | None) -> Next | None:
    """Topics that are no longer subscribed go at once, without waiting for a new target."""
    gone = [topic for topic in member.assigned if topic not in standing.subscribed]
    if not gone:
        return None
    assigned = {topic: parts for topic, parts in member.assigned.items() if topic in standing.subscribed}
    revoking = dict(member.revoking)
    for topic in gone:
        revoking[topic] = revoking.get(topic, ()) + member.assigned[topic]
    if _may_own(revoking, said):
        return Next(state=MemberState.UNREVOKED, epoch=member.epoch, assigned=assigned, revoking=revoking)  # G7
    return Next(state=member.state, epoch=member.epoch, assigned=assigned, revoking=member.revoking)


def _advance(member: Holding, standing: Standing, said: Mapping[TopicId, int] | None) -> Next:
    """Towards the target, as far as others let it."""
    assigned: Runs = {}
    revoking: Runs = {}
    added: Masks = {}
    lacking = False
    for topic in member.target | member.assigned:
        target = member.target.get(topic, 0) if topic in standing.subscribed else 0
        parts = member.assigned.get(topic, ())
        mine = held(parts)
        if mine & target:
            assigned[topic] = tuple((since, mask & target) for since, mask in parts if mask & target)
        if mine & ~target:
            revoking[topic] = tuple((since, mask & ~target) for since, mask in parts if mask & ~target)
        others = standing.owned.get(topic, 0) & ~(mine | held(member.revoking.get(topic, ())))
        want = target & ~mine
        lacking = lacking or want & others != 0
        if want & ~others:
            added[topic] = want & ~others  # G6: what others own is not given
    if _may_own(revoking, said):
        return Next(state=MemberState.UNREVOKED, epoch=member.epoch, assigned=assigned, revoking=revoking)  # G7
    for topic, mask in added.items():
        assigned[topic] = (*assigned.get(topic, ()), (standing.assignment_epoch, mask))
    state = MemberState.UNRELEASED if lacking else MemberState.STABLE
    return Next(state=state, epoch=standing.assignment_epoch, assigned=assigned, revoking={})
