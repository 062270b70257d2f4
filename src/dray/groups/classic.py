"""Classic groups, as a service: what waits between a request and the machine.

JoinGroup and SyncGroup are parked here until the state of the group tells
their answer; any broker would tell the same. A heartbeat is answered from
memory at the member's home, and elsewhere once the machine knows of the move.

Invariants
    GS1  A call at another broker than the home is answered after its
         `Rehome`, or the command that names the member, was applied.
    GS2  A settled member's heartbeat writes nothing.
    GS4  A parked call is answered from the state alone: any broker would
         answer the same.
    GS5  Nobody is told from memory that it is unknown, fenced or late: the
         machine says so, or a second look after a sync.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dray.clock import Clock
from dray.errors import Unavailable
from dray.groups import telemetry
from dray.groups.errors import AssignmentTooLarge, BadGroupId, BadSessionTimeout, GroupSaysNo
from dray.groups.homes import Homes
from dray.groups.offsets import check_group
from dray.groups.placement import domain_of_group
from dray.groups.settings import GroupSettings
from dray.ids import Entropy, new_uuid
from dray.machine.groups import told
from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.codes import Assigned, Denied, GroupCode, Joined, PendingJoin, Rehomed, Removed, Waiting
from dray.machine.groups.commands import AssignClassic, JoinClassic, Rehome, Removal, RemovalRow, RemoveMembers
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.verdict import Verdict
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.wakeups import GroupKey, Waiter

ASSIGNMENT_BYTES: Final = 900 << 10
"""Of all members of a generation: an entry of the log takes a little more."""
JOIN_BYTES: Final = 900 << 10
GRACE_S: Final = 5.0
"""A parked call waits this much longer than its rebalance may take: Java's consumers do."""
_CERTAIN: Final = frozenset({GroupCode.ACCEPTED, GroupCode.REBALANCING})
"""What may be told from memory (GS5)."""
CLIENT_LETTERS: Final = 1_000
"""Of a client id or instance id that go into a member id."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who says that it is a member."""

    group: str
    member: MemberId
    instance: InstanceId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup."""

    caller: Caller
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    topics: tuple[str, ...] | None
    must_know: bool
    """A new member without an instance is given its id first."""
    tells_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup."""

    caller: Caller
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[MemberId, bytes], ...]


class ClassicService:
    """What handlers of JoinGroup, SyncGroup, Heartbeat and LeaveGroup ask."""

    def __init__(
        self, *, domains: Domains, homes: Mapping[int, Homes], clock: Clock, entropy: Entropy, settings: GroupSettings
    ) -> None:
        self._domains = domains
        self._homes = homes
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._stopping = False
        self._waiters: set[Waiter] = set()

    async def join(self, call: Join) -> Joined | PendingJoin:
        """Be in the next generation; returns when it has begun.

        Raises:
            BadGroupId, BadSessionTimeout, GroupSaysNo: the caller is in no generation.
            Unavailable, Unknown: repeat it; with the same id it finds the same generation.
        """
        caller = call.caller
        self._check_group(caller.group)
        if not self._settings.takes_session(call.session_ms):
            raise BadSessionTimeout("the session timeout is out of bounds", session_ms=call.session_ms)
        replica, homes = self._of(caller.group)
        new = not caller.member
        member = self._new_id(call) if new else caller.member
        (verdict,) = await replica.propose(self._command(call, member, new=new))
        match verdict:
            case PendingJoin():
                homes.given(caller.group, member, call.session_ms)
                return verdict
            case Joined():
                joined = verdict
            case Waiting():
                outcome = await self._parked(
                    replica, caller, member, call.session_ms, call.rebalance_ms,
                    lambda group: told.join_outcome(group, member, caller.instance),
                )  # fmt: skip
                joined = outcome
            case _:
                raise self._denied(verdict, caller.group)
        await self._stay(replica, caller.group, member)
        homes.heard(caller.group, member, call.session_ms)
        homes.answered_join(caller.group, member, joined.generation, self._rebalance_ms(replica, caller.group))
        return joined

    async def sync(self, call: Sync) -> tuple[bytes, str, str | None]:
        """What the caller has to do in its generation, and the group's type and protocol; returns when it is known.

        Raises:
            BadGroupId, AssignmentTooLarge, GroupSaysNo: there is none for the caller.
            Unavailable, Unknown: repeat it.
        """
        caller = call.caller
        self._check_group(caller.group)
        if sum(len(data) + len(name) + 16 for name, data in call.assignments) > ASSIGNMENT_BYTES:
            raise AssignmentTooLarge("the assignments do not fit into an entry of the log")
        replica, homes = self._of(caller.group)
        member = caller.member

        def look(group: ClassicGroup) -> bytes | GroupCode | None:
            return told.synced(
                group, member, caller.instance, call.generation, call.protocol_type, call.protocol
            )  # fmt: skip

        outcome = await self._settled(replica, caller.group, look)
        if isinstance(outcome, GroupCode):
            raise GroupSaysNo(outcome, caller.group)
        group = replica.machine.groups.classic(caller.group)
        if outcome is None and group is not None and group.leader == member:
            outcome = await self._assign(replica, call)
        else:
            await self._stay(replica, caller.group, member)
        homes.synced(caller.group, member)
        group = replica.machine.groups.classic(caller.group)
        found = None if group is None else group.members.get(member)
        if group is None or found is None:
            raise GroupSaysNo(GroupCode.UNKNOWN_MEMBER, caller.group)
        if outcome is None:
            outcome = await self._parked(
                replica, caller, member, found.session_ms, group.rebalance_ms,
                lambda group: told.sync_outcome(group, member, caller.instance, call.generation),
            )  # fmt: skip
            await self._stay(replica, caller.group, member)
        homes.heard(caller.group, member, found.session_ms)
        return outcome, group.protocol_type, group.protocol

    async def beat(self, caller: Caller, generation: int) -> GroupCode:
        """What a member should do next; it is not silent.

        Raises:
            BadGroupId: there is no such group.
            Unavailable, Unknown: repeat it.
        """
        self._check_group(caller.group)
        replica, homes = self._of(caller.group)

        def look(group: ClassicGroup) -> GroupCode:
            return told.beaten(group, caller.member, caller.instance, generation)

        code = await self._settled(replica, caller.group, look)
        if code not in _CERTAIN:
            return code
        if await self._stay(replica, caller.group, caller.member):
            code = await self._settled(replica, caller.group, look)
            if code not in _CERTAIN:
                return code
        group = replica.machine.groups.classic(caller.group)
        found = None if group is None else group.members.get(caller.member)
        if found is not None and homes.is_own(found.home):
            homes.heard(caller.group, caller.member, found.session_ms)
        return code

    async def leave(self, group: str, members: Sequence[Caller]) -> list[GroupCode]:
        """Take members out; one code for each.

        Raises:
            BadGroupId: there is no such group.
            Unavailable, Unknown: repeat it.
        """
        self._check_group(group)
        replica, homes = self._of(group)
        rows = tuple(RemovalRow(member=one.member, instance=one.instance) for one in members)
        (verdict,) = await replica.propose(RemoveMembers(group=group, reason=Removal.LEFT, rows=rows))
        if not isinstance(verdict, Removed):
            raise self._denied(verdict, group)
        for one, code in zip(members, verdict.codes, strict=True):
            if code is GroupCode.ACCEPTED:
                homes.forget(group, one.member)
                telemetry.REMOVED.labels(Removal.LEFT.name.lower()).inc()
        return list(verdict.codes)

    def stop(self) -> None:
        """Whoever is parked must ask another broker: this one will not be there when the group comes together."""
        self._stopping = True
        for waiter in self._waiters:
            waiter.wake_wholly()

    # -- parts -------------------------------------------------------------

    def _of(self, group: str) -> tuple[Replica, Homes]:
        domain = domain_of_group(group, self._domains.catalog.machine.head.group_domains)
        return self._domains[domain], self._homes[domain]

    def _check_group(self, group: str) -> None:
        check_group(group)
        if not group:
            raise BadGroupId("members have a group with a name")

    def _new_id(self, call: Join) -> MemberId:
        """As Kafka's: readable, and never given twice."""
        said = call.client_id if call.caller.instance is None else call.caller.instance
        return MemberId(f"{said[:CLIENT_LETTERS]}-{new_uuid(self._entropy)}")

    def _command(self, call: Join, member: MemberId, *, new: bool) -> JoinClassic:
        if sum(len(data) + len(name) + 16 for name, data in call.protocols) > JOIN_BYTES:
            raise AssignmentTooLarge("the metadata of a member does not fit into an entry of the log")
        return JoinClassic(
            group=call.caller.group, member=member, new=new, must_know=call.must_know, instance=call.caller.instance,
            client_id=call.client_id, client_host=call.client_host, session_ms=call.session_ms,
            rebalance_ms=call.rebalance_ms, protocol_type=call.protocol_type, protocols=call.protocols,
            topics=call.topics, delay_ms=self._settings.initial_delay_ms, max_size=self._settings.max_size,
            tells_leader=call.tells_leader,
        )  # fmt: skip

    async def _assign(self, replica: Replica, call: Sync) -> bytes | None:
        caller = call.caller
        (verdict,) = await replica.propose(
            AssignClassic(
                group=caller.group, member=caller.member, instance=caller.instance, generation=call.generation,
                protocol_type=call.protocol_type, protocol=call.protocol, rows=call.assignments,
            )
        )  # fmt: skip
        match verdict:
            case Assigned(assignment=assignment):
                return assignment
            case Waiting():
                return None
            case _:
                raise self._denied(verdict, caller.group)

    async def _stay(self, replica: Replica, group: str, member: MemberId) -> bool:
        """See that this broker is the home of a member that it is about to answer (GS1); whether that took an entry.

        A broker may lose its session while a call is parked, and with it be the home of nobody.
        """
        if self._is_home(replica, group, member):
            return False
        await self._rehome(replica, group, member)
        return True

    async def _rehome(self, replica: Replica, group: str, member: MemberId) -> None:
        _, homes = self._of(group)
        with homes.asks(group, member):
            (verdict,) = await replica.propose(Rehome(group=group, members=(member,)))
        match verdict:
            case Rehomed(codes=(GroupCode.ACCEPTED,)):
                return
            case Rehomed(codes=(code,)):
                raise GroupSaysNo(code, group)
            case _:
                raise self._denied(verdict, group)

    async def _settled(self, replica: Replica, name: str, look: Callable[[ClassicGroup], T]) -> T | GroupCode:
        """What the state tells; what may not be told from memory after a sync (GS5)."""
        self._domains.catalog.check_serving()
        if replica.session is not None:
            replica.check_serving()  # RP5
        outcome = _look(replica, name, look)
        if isinstance(outcome, GroupCode) and outcome not in _CERTAIN:
            await replica.sync()
            outcome = _look(replica, name, look)
        return outcome

    async def _parked(
        self, replica: Replica, caller: Caller, member: MemberId, session_ms: int, rebalance_ms: int,
        look: Callable[[ClassicGroup], T | GroupCode | None],
    ) -> T:  # fmt: skip
        """Wait until the state tells an answer (GS4)."""
        _, homes = self._of(caller.group)
        seconds = rebalance_ms / 1_000 + GRACE_S
        with replica.waiter((GroupKey(caller.group),)) as waiter, homes.parked(caller.group, member, session_ms):
            self._waiters.add(waiter)
            try:
                async with asyncio.timeout(seconds):
                    while True:
                        waiter.clear()
                        outcome = _look(replica, caller.group, look)
                        if isinstance(outcome, GroupCode):
                            raise GroupSaysNo(outcome, caller.group)
                        if outcome is not None:
                            return outcome
                        if self._stopping:
                            raise Unavailable("the broker is stopping: ask another one")
                        replica.check_serving()
                        await waiter.wait(seconds)
            except TimeoutError:
                raise Unavailable("the group did not come together in time", group=caller.group[:100]) from None
            finally:
                self._waiters.discard(waiter)

    def _is_home(self, replica: Replica, group: str, member: MemberId) -> bool:
        _, homes = self._of(group)
        found = replica.machine.groups.find(group)
        home = None if found is None else found.home_of(member)
        return home is not None and homes.may_answer(group, member, home)

    def _rebalance_ms(self, replica: Replica, group: str) -> int:
        found = replica.machine.groups.classic(group)
        return 0 if found is None else found.rebalance_ms

    def _denied(self, verdict: Verdict, group: str) -> Exception:
        if isinstance(verdict, Denied):
            return GroupSaysNo(verdict.code, group)
        return Unavailable("the group could not be changed: try again", group=group[:100], verdict=verdict)


def _look(replica: Replica, name: str, look: Callable[[ClassicGroup], T]) -> T | GroupCode:
    group = replica.machine.groups.classic(name)
    return GroupCode.UNKNOWN_MEMBER if group is None else look(group)
