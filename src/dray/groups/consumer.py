"""Members of consumer groups (KIP-848), as a service: what waits between a heartbeat and the machine.

A heartbeat that would change nothing is answered from memory, if this broker
is the member's home and may answer from memory at all. Everything else is a
`Beat`: the machine judges it, and its verdict is the answer. No negative
answer comes from memory.

Who joins waits a moment for a target that takes it into account; if there is
none yet it is told an empty assignment, and gets the real one with its next
heartbeat. A settled member's heartbeat writes nothing (GS2), and one at another
broker than the home is answered after its `Beat` was applied (GS1).

Invariants
    GS8  A heartbeat is as old as the state was when it came in, however long
         it waits here; and no member learns from memory that it owns what it
         did not say that it owns. So a call that its client has given up
         cannot count after one that told it more (G10).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dray.clock import Clock
from dray.groups import telemetry
from dray.groups.configs import HEARTBEAT, SESSION, GroupConfigService
from dray.groups.errors import UnknownAssignor
from dray.groups.homes import Homes, Silence
from dray.groups.patterns import check_pattern
from dray.groups.placement import domain_of_group
from dray.groups.targets import chosen
from dray.groups.topics import Seen, TopicViews
from dray.ids import Entropy, new_uuid
from dray.machine.groups.beats import Beat, Beaten, OwnedRow
from dray.machine.groups.codes import Denied, GroupCode, Removed
from dray.machine.groups.commands import Removal, RemovalRow, RemoveMembers
from dray.machine.groups.consumer import ConsumerGroup
from dray.machine.groups.masks import Masks, held, mask_of, masks_of, to_bytes
from dray.machine.groups.members import ConsumerMember
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.reconcile import MemberState, reconcile
from dray.machine.names import TopicId
from dray.machine.verdict import Verdict
from dray.offload import Offload
from dray.replica.domains import Domains
from dray.replica.errors import NotServing
from dray.replica.freshness import Freshness
from dray.replica.replica import Replica
from dray.replica.wakeups import GroupKey

JOINS: Final = 0
LEAVES: Final = -1
GOES_AWAY: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a member says; None, and -1 for a time: as it was."""

    group: str
    member: str
    epoch: int
    instance: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_ms: int = -1
    names: Sequence[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Mapping[TopicId, Sequence[int]] | None = None

    @property
    def says_all(self) -> bool:
        """A full request: whoever sends it may not know what it was told last."""
        subscribes = self.names is not None or self.regex is not None
        return self.rebalance_ms >= 0 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer to a heartbeat."""

    member: str
    epoch: int
    assigned: Masks | None
    """None: as it was."""
    interval_ms: int
    """Until its next heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member says it owns, as far as its group knows of it."""

    masks: Masks
    alien: bool
    """It also says that it owns something else."""


Answer: TypeAlias = Told | GroupCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """What is asked of members, and granted to them."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is taken when members ask for none."""
    max_size: int = 10_000
    join_wait_ms: int = 500
    """So long a join waits for a target that takes it into account."""
    unsettled_ms: int = 1_000
    """How often a member should ask that waits for others; 0: as often as always."""


class ConsumerService:
    """What the handler of ConsumerGroupHeartbeat asks."""

    def __init__(
        self,
        *,
        domains: Domains,
        views: TopicViews,
        homes: Mapping[int, Homes],
        configs: GroupConfigService,
        clock: Clock,
        entropy: Entropy,
        offload: Offload,
        limits: ConsumerLimits,
    ) -> None:
        self._domains = domains
        self._views = views
        self._homes = homes
        self._configs = configs
        self._clock = clock
        self._entropy = entropy
        self._offload = offload
        self._limits = limits
        self._stopping = False

    def stop(self) -> None:
        """Who joins must ask another broker now; nothing is answered from memory any more."""
        self._stopping = True

    async def beat(self, call: Heartbeat) -> Answer:
        """Take a heartbeat, a join or a leave.

        Raises:
            UnknownAssignor, BadPattern, NotActive: nothing happened.
            Unavailable: nothing happened; this process may not serve.
            Unknown: it may have happened; a repeat is harmless.
        """
        replica = self._replica(call.group)
        self._check_serving(replica)
        if not call.member:
            call = replace(call, member=str(new_uuid(self._entropy)))
        if call.epoch < JOINS:
            return await self._leave(replica, call)
        seen = replica.machine.position  # GS8: read before anything is awaited
        with self._homes[replica.machine.domain].asks(call.group, MemberId(call.member)):
            await self._check_wishes(replica, call)
            answer = self._from_memory(replica, call) or await self._by_machine(replica, call, seen)
        if isinstance(answer, Told):
            self._watch(replica, call)
        return answer

    async def _check_wishes(self, replica: Replica, call: Heartbeat) -> None:
        if call.assignor is not None and call.assignor not in self._limits.assignors:
            known = ", ".join(self._limits.assignors)
            raise UnknownAssignor(f"there is no such assignor: {known}", assignor=call.assignor[:100])
        if call.regex:
            group = replica.machine.groups.consumer(call.group)
            if group is None or call.regex not in group.topics.regexes:
                await self._offload.run(check_pattern, call.regex)

    # -- from memory -----------------------------------------------------------

    def _from_memory(self, replica: Replica, call: Heartbeat) -> Told | None:
        """The answer, if the call changes nothing and this broker is the home of its member (GS2)."""
        group = replica.machine.groups.consumer(call.group)
        member = None if group is None else group.members.get(MemberId(call.member))
        session = replica.session
        if group is None or member is None or session is None:
            return None
        homes = self._homes[replica.machine.domain]
        if not homes.may_answer(call.group, member.id, member.home) or homes.calls(call.group, member.id) > 1:  # GS8
            return None
        if call.epoch == JOINS or call.epoch != member.epoch or _says_news(call, member):
            return None
        claim = claim_of(group, member, call.owned)
        if reconcile(member, group.standing(member), None if claim is None else claim.masks) is not None:
            return None
        assigned = masks_of(member.assigned) if call.says_all else None
        if assigned is not None and (claim is None or claim.alien or claim.masks != assigned):
            return None  # GS8
        return self._told(call, member.epoch, assigned, settled=group.is_settled(member))

    # -- by the machine --------------------------------------------------------

    async def _by_machine(self, replica: Replica, call: Heartbeat, seen: int) -> Answer:
        verdict = await (self._join if call.epoch == JOINS else self._judge)(replica, call, seen)
        if isinstance(verdict, GroupCode):
            return verdict
        assigned = dict(verdict.assigned) if verdict.sent or call.epoch == JOINS else None
        return self._told(call, verdict.epoch, assigned, settled=verdict.settled)

    async def _join(self, replica: Replica, call: Heartbeat, seen: int) -> Beaten | GroupCode:
        """Join, and wait a moment for a target."""
        with replica.waiter([GroupKey(call.group)]) as waiter:
            first = await self._judge(replica, call, seen)
            if isinstance(first, GroupCode) or not first.behind:
                return first
            deadline_ns = self._clock.boot_ns() + self._limits.join_wait_ms * 1_000_000
            while self._is_behind(replica, call.group):
                left_ns = deadline_ns - self._clock.boot_ns()
                if left_ns <= 0 or not await waiter.wait(left_ns / 1e9):
                    return first
                waiter.clear()
        again = Heartbeat(
            group=call.group, member=call.member, epoch=first.epoch, instance=call.instance,
            client_id=call.client_id, client_host=call.client_host, owned={},
        )  # fmt: skip
        second = await self._judge(replica, again, first.position)
        # What was said first is true; if that has changed, the next heartbeat will tell.
        return first if isinstance(second, GroupCode) else second

    def _is_behind(self, replica: Replica, name: str) -> bool:
        self._check_serving(replica)
        group = replica.machine.groups.consumer(name)
        return group is not None and group.is_behind

    async def _judge(self, replica: Replica, call: Heartbeat, seen: int) -> Beaten | GroupCode:
        topics = Seen(catalog=0, rows=()) if call.names is None else await self._views.of(call.names)
        match await self._apply(replica, call, topics, seen):
            case Beaten() as beaten:
                return beaten
            case Denied(code=code):
                return code
            case verdict:
                raise NotServing("the machine refused a heartbeat", verdict=repr(verdict)[:200])

    async def _apply(self, replica: Replica, call: Heartbeat, topics: Seen, seen: int) -> Verdict:
        group = replica.machine.groups.consumer(call.group)
        member = None if group is None else group.members.get(MemberId(call.member))
        claim = claim_of(group, member, call.owned)
        owned = None if claim is None else tuple(
            OwnedRow(topic_id=topic, mask=to_bytes(mask)) for topic, mask in sorted(claim.masks.items())
        )  # fmt: skip
        command = Beat(
            group=call.group, member=MemberId(call.member), epoch=call.epoch,
            instance=None if call.instance is None else InstanceId(call.instance), rack=call.rack,
            client_id=call.client_id, client_host=call.client_host, rebalance_ms=call.rebalance_ms,
            names=None if call.names is None else tuple(call.names), regex=call.regex, assignor=call.assignor,
            owned=owned, alien=claim is not None and claim.alien, topics=topics.rows,
            catalog=topics.catalog, max_size=self._limits.max_size, seen=seen,
        )  # fmt: skip
        (verdict,) = await replica.propose(command)
        return verdict

    async def describe(self, name: str, fresh: Freshness) -> ConsumerGroup | GroupCode:
        """A consumer group as it is; that there is none is said after a sync."""
        replica = self._replica(name)
        await fresh.of(replica)
        found = replica.machine.groups.find(name)
        if isinstance(found, ConsumerGroup):
            return found
        return (
            GroupCode.UNKNOWN_GROUP
            if found is None and not replica.machine.offsets.has(name)
            else GroupCode.OTHER_PROTOCOL
        )

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The one by which its targets are computed."""
        return chosen(group, self._limits.assignors)

    async def _leave(self, replica: Replica, call: Heartbeat) -> Answer:
        row = RemovalRow(
            member=MemberId(call.member), instance=None if call.instance is None else InstanceId(call.instance),
            seen=replica.machine.position,
        )  # fmt: skip
        reason = Removal.AWAY if call.epoch == GOES_AWAY else Removal.LEFT
        (verdict,) = await replica.propose(RemoveMembers(group=call.group, reason=reason, rows=(row,)))
        if not isinstance(verdict, Removed):
            raise NotServing("the machine refused a leave", verdict=repr(verdict)[:200])
        (code,) = verdict.codes
        if code is GroupCode.UNKNOWN_MEMBER and replica.machine.groups.consumer(call.group) is None:
            return GroupCode.UNKNOWN_GROUP
        if code is not GroupCode.ACCEPTED:
            return code
        telemetry.REMOVED.labels(reason.name.lower()).inc()
        if reason is Removal.LEFT:
            self._homes[replica.machine.domain].forget(call.group, MemberId(call.member))
        return Told(member=call.member, epoch=call.epoch, assigned=None, interval_ms=0)

    def _told(self, call: Heartbeat, epoch: int, assigned: Masks | None, *, settled: bool) -> Told:
        interval_ms = self._configs.value(call.group, HEARTBEAT)
        if not settled and self._limits.unsettled_ms:
            interval_ms = min(interval_ms, self._limits.unsettled_ms)
        return Told(member=call.member, epoch=epoch, assigned=assigned, interval_ms=interval_ms)

    # -- after the answer --------------------------------------------------------

    def _watch(self, replica: Replica, call: Heartbeat) -> None:
        """Its home is here: begin to wait for its next heartbeat, and for what it must let go of."""
        group = replica.machine.groups.consumer(call.group)
        member = None if group is None else group.members.get(MemberId(call.member))
        session = replica.session
        if member is None or session is None or member.home != session.id:
            return
        homes = self._homes[replica.machine.domain]
        homes.heard(call.group, member.id, self._configs.value(call.group, SESSION))
        silence = Silence(call.group, member.id, Removal.UNREVOKED, member.epoch)
        if member.state is not MemberState.UNREVOKED:
            homes.synced(call.group, member.id)
        elif not homes.watches(silence):
            homes.watch(silence, member.rebalance_ms)

    def _replica(self, group: str) -> Replica:
        return self._domains[domain_of_group(group, self._domains.catalog.machine.head.group_domains)]

    def _check_serving(self, replica: Replica) -> None:
        if self._stopping:
            raise NotServing("the broker is stopping")
        self._domains.catalog.check_serving()
        if replica.session is not None:
            replica.check_serving()


def _says_news(call: Heartbeat, member: ConsumerMember) -> bool:
    """Whether a heartbeat says of its member what the group does not know."""
    given = (
        (call.instance, member.instance), (call.rack, member.rack), (call.regex, member.regex),
        (call.assignor, member.assignor),
    )  # fmt: skip
    if any(new is not None and new != known for new, known in given):
        return True
    if call.rebalance_ms >= 0 and call.rebalance_ms != member.rebalance_ms:
        return True
    return call.names is not None and tuple(sorted(set(call.names))) != member.names


def claim_of(
    group: ConsumerGroup | None, member: ConsumerMember | None, owned: Mapping[TopicId, Sequence[int]] | None
) -> Claim | None:
    """Partitions that a client says it owns, as masks.

    A number from outside makes a mask as long as itself, so it is taken only below what the group knows the topic to
    have, or what the member holds of it: a topic that nobody subscribes any more may still be in its hands.
    """
    if owned is None:
        return None
    masks: Masks = {}
    alien = False
    sizes = {} if group is None or member is None else group.subscribed(member)
    for topic, partitions in owned.items():
        mine = 0 if member is None else held((*member.assigned.get(topic, ()), *member.revoking.get(topic, ())))
        end = max(sizes.get(topic, 0), mine.bit_length())
        known = [partition for partition in partitions if 0 <= partition < end]
        alien = alien or len(known) < len(partitions)
        if known:
            masks[topic] = masks.get(topic, 0) | mask_of(known)
    return Claim(masks=masks, alien=alien)
