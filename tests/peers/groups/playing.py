"""The same random calls about classic groups to two servers, and what they answer, with ids masked.

Each run has a group and four clients, one of them static, on a connection each. A call that is not answered is parked;
whatever one server answers the other must answer, and what one keeps parked the other must keep parked.

Two things are not compared, and a run ends there. Who leads after a leader has gone: Kafka takes the first of a hash
map, whose order comes from ids that it draws. And a group whose last member left while ids were given and not used:
Kafka keeps it in PreparingRebalance for a while, here it is Empty at once.
"""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from dray.servers.kafka.messages.describe_groups import DescribeGroupsRequest
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest
from dray.servers.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.servers.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.golden.asking import Asker

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, COMMIT = 11, 12, 13, 14, 15, 8
CLIENTS, STATIC, STEPS = 4, 3, 40
QUIET_S, LATE_S = 0.06, 25.0
TOPIC = "compared"
Masked: TypeAlias = tuple[object, ...] | None


@dataclass
class Player:
    """One client, as one server knows it."""

    asker: Asker
    member: str = ""
    task: "asyncio.Task[object] | None" = None


@dataclass
class Side:
    """One server and its players."""

    name: str
    players: list[Player]
    admin: Asker


@dataclass
class Believed:
    """What a client has been told; the same by both servers."""

    instance: str | None
    generation: int = -1
    protocol: str | None = None
    leads: bool = False
    known: bool = False
    call: str = ""


@dataclass
class Outcome:
    """How a run went."""

    calls: int = 0
    states: Counter[str] = field(default_factory=Counter)
    elections: int = 0
    """Runs that ended because another member was made the leader."""
    waits: int = 0
    """Runs that ended because Kafka keeps a group without members waiting for ids that it gave."""
    difference: str = ""


class Run:
    """One group at two servers."""

    def __init__(self, seed: int, sides: list[Side]) -> None:
        self.dice = random.Random(seed)
        self.seed = seed
        self.group = f"compared-{seed}-{uuid.uuid4().hex[:6]}"
        self.sides = sides
        self.believed = [Believed(f"i{n}" if n == STATIC else None) for n in range(CLIENTS)]
        self.trail: list[str] = []
        self.leader: int | None = None
        """Who leads, as far as both have told; None: it is gone, or there was none."""
        self.outcome = Outcome()

    async def play(self) -> Outcome:
        for _ in range(STEPS):
            if not await self.step():
                break
        return self.outcome

    async def step(self) -> bool:
        free = [n for n, one in enumerate(self.believed) if not one.call]
        if not free:
            return False
        number = self.dice.choice(free)
        leading = [n for n in free if self.believed[n].leads]
        if leading and self.dice.random() < 0.4:
            number = leading[0]
        what = self.dice.choices(
            ["join", "sync", "beat", "leave", "commit", "fresh", "old sync", "stranger"],
            [8, 8, 3, 1, 3, 0.4, 0.5, 0.2],
        )[0]
        self.begin(number, what)
        self.outcome.calls += 1
        return await self.compare() and await self.compare_states()

    # -- calls -------------------------------------------------------------

    def begin(self, number: int, what: str) -> None:
        one = self.believed[number]
        if what == "fresh":
            self.forget(number)
            what = "join"
        made: Callable[[Side], tuple[int, int, object]]
        match what:
            case "join":
                made = self.joining(number)
            case "sync" | "old sync":
                made = self.syncing(number, one.generation - (what == "old sync"))
            case "beat" | "stranger":
                made = self.beating(number, stranger=what == "stranger")
            case "leave":
                made = self.leaving(number)
            case _:
                made = self.committing(number)
        one.call = {"old sync": "sync", "stranger": "beat"}.get(what, what)
        self.trail.append(f"{what} by {number} in generation {one.generation}")
        for side in self.sides:
            player = side.players[number]
            player.task = asyncio.create_task(player.asker.call(*made(side)))

    @property
    def leader_is_gone(self) -> bool:
        """It has left, or is leaving in this very turn."""
        return self.leader is None or self.believed[self.leader].call == "leave"

    def forget(self, number: int) -> None:
        one = self.believed[number]
        one.generation, one.protocol, one.leads, one.known = -1, None, False, False
        self.leader = None if self.leader == number else self.leader
        for side in self.sides:
            side.players[number].member = ""

    def joining(self, number: int) -> Callable[[Side], tuple[int, int, object]]:
        names = self.dice.choice([("range",), ("range", "rr"), ("rr", "range")])
        offers = [
            JoinGroupRequestProtocol(name=name, metadata=b"x%d" % self.dice.choice([0, 0, 0, 1])) for name in names
        ]
        return lambda side: (
            JOIN, 9,
            JoinGroupRequest(
                group_id=self.group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
                member_id=side.players[number].member, group_instance_id=self.believed[number].instance,
                protocol_type="consumer", protocols=offers,
            ),
        )  # fmt: skip

    def syncing(self, number: int, generation: int) -> Callable[[Side], tuple[int, int, object]]:
        one = self.believed[number]
        return lambda side: (
            SYNC, 5 if one.protocol else 4,
            SyncGroupRequest(
                group_id=self.group, generation_id=generation, member_id=side.players[number].member,
                group_instance_id=one.instance, protocol_type="consumer", protocol_name=one.protocol,
                assignments=[
                    SyncGroupRequestAssignment(member_id=player.member, assignment=b"a%d" % n)
                    for n, player in enumerate(side.players) if player.member
                ],
            ),
        )  # fmt: skip

    def beating(self, number: int, *, stranger: bool) -> Callable[[Side], tuple[int, int, object]]:
        one = self.believed[number]
        return lambda side: (
            HEARTBEAT, 4,
            HeartbeatRequest(
                group_id=self.group, generation_id=one.generation, group_instance_id=one.instance,
                member_id="stranger" if stranger else side.players[number].member,
            ),
        )  # fmt: skip

    def leaving(self, number: int) -> Callable[[Side], tuple[int, int, object]]:
        one = self.believed[number]
        return lambda side: (
            LEAVE, 5,
            LeaveGroupRequest(
                group_id=self.group,
                members=[MemberIdentity(member_id=side.players[number].member, group_instance_id=one.instance)],
            ),
        )  # fmt: skip

    def committing(self, number: int) -> Callable[[Side], tuple[int, int, object]]:
        one = self.believed[number]
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        return lambda side: (
            COMMIT, 9,
            OffsetCommitRequest(
                group_id=self.group, generation_id_or_member_epoch=one.generation,
                member_id=side.players[number].member, group_instance_id=one.instance,
                topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
            ),
        )  # fmt: skip

    # -- answers -----------------------------------------------------------

    async def compare(self) -> bool:
        """Wait until both are quiet, and give the one that has answered less its time."""
        end = asyncio.get_running_loop().time() + LATE_S
        while True:
            for side in self.sides:
                await _quiet([player.task for player in side.players if player.task is not None])
            done = [[player.task is not None and player.task.done() for player in side.players] for side in self.sides]
            if done[0] == done[1] or asyncio.get_running_loop().time() > end:
                break
        for number, one in enumerate(self.believed):
            if not one.call:
                continue
            told = [self.masked(one.call, side.players[number]) for side in self.sides]
            if told[0] != told[1]:
                if self.leader_is_gone and _alike_but_for_the_leader(*told):
                    self.outcome.elections += 1
                    return False
                self.differs(f"{one.call} of {number}", dict(zip((s.name for s in self.sides), told, strict=True)))
                return False
            if told[0] is not None:
                self.trail.append(f"  {one.call} of {number}: {told[0]}")
                self.learn(number)
        return True

    async def compare_states(self) -> bool:
        """Kafka ends a phase a little after the call that ended it: it is asked until both are of one mind."""
        end = asyncio.get_running_loop().time() + LATE_S
        while True:
            states = {side.name: await self.state_at(side) for side in self.sides}
            if len(set(states.values())) == 1:
                break
            if set(states.values()) == {("Empty", "", 0), ("PreparingRebalance", "", 0)}:
                self.outcome.waits += 1
                return False
            if asyncio.get_running_loop().time() > end:
                self.differs("state", states)
                return False
            await asyncio.sleep(QUIET_S)
        self.outcome.states[next(iter(states.values()))[0]] += 1
        return True

    async def state_at(self, side: Side) -> tuple[str, str, int]:
        request = DescribeGroupsRequest(groups=[self.group])
        [found] = (await side.admin.call(DESCRIBE, 6, request)).groups
        # A group of given ids only is a group here, and survives its broker; Kafka tells of it once it has members.
        state = "Empty" if found.group_state == "Dead" else found.group_state
        return state, found.protocol_data, len(found.members)

    def masked(self, call: str, player: Player) -> Masked:
        if player.task is None or not player.task.done():
            return None
        answer = player.task.result()
        match call:
            case "join" if answer.error_code:
                return (answer.error_code, answer.generation_id, answer.leader, answer.protocol_name)
            case "join":
                return (
                    0, answer.generation_id, answer.protocol_type, answer.protocol_name, answer.skip_assignment,
                    answer.leader == answer.member_id, sorted(bytes(one.metadata) for one in answer.members),
                )  # fmt: skip
            case "sync":
                return (answer.error_code, bytes(answer.assignment), answer.protocol_type, answer.protocol_name)
            case "leave":
                return (answer.error_code, [one.error_code for one in answer.members])
            case "commit":
                return (answer.topics[0].partitions[0].error_code,)
            case _:
                return (answer.error_code,)

    def learn(self, number: int) -> None:
        """Both have answered alike: go on as a client would."""
        one = self.believed[number]
        call, one.call = one.call, ""
        for side in self.sides:
            player = side.players[number]
            assert player.task is not None
            answer = player.task.result()
            player.task = None
            if call == "join" and answer.error_code in (0, 79):
                player.member = answer.member_id
            if call == "join" and answer.error_code == 0:
                one.generation, one.protocol = answer.generation_id, answer.protocol_name
                one.leads = answer.leader == answer.member_id
                self.leader = number if one.leads else self.leader
        if call in ("join", "sync") and answer.error_code == 25:
            self.forget(number)
        if call == "sync" and answer.error_code == 0:
            one.leads = False
        if call == "leave" and not answer.error_code and not answer.members[0].error_code:
            self.forget(number)

    def differs(self, what: str, told: object) -> None:
        last = "\n  ".join(self.trail[-12:])
        self.outcome.difference = f"seed {self.seed}: {what}: {told}\n  {last}"


def _alike_but_for_the_leader(one: Masked, other: Masked) -> bool:
    """Two joins of the same generation, of which one leads."""
    return one is not None and other is not None and one[0] == other[0] == 0 and one[:5] == other[:5]


async def _quiet(tasks: "list[asyncio.Task[object]]") -> None:
    """Return when nothing more is answered for a while."""
    while True:
        waiting = [task for task in tasks if not task.done()]
        if not waiting:
            return
        done, _ = await asyncio.wait(waiting, timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


async def play_all(addresses: dict[str, str], seeds: list[int], at_once: int = 10) -> list[Outcome]:
    """All these runs, some at a time."""
    outcomes: list[Outcome] = []
    left = list(reversed(seeds))

    async def work() -> None:
        while left:
            seed = left.pop()
            sides = [await _side(name, address) for name, address in addresses.items()]
            try:
                outcomes.append(await Run(seed, sides).play())
            finally:
                for side in sides:
                    for asker in (side.admin, *(player.asker for player in side.players)):
                        asker.close()
                    await asyncio.gather(
                        *(player.task for player in side.players if player.task is not None), return_exceptions=True
                    )

    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(work())
    return outcomes


async def _side(name: str, address: str) -> Side:
    askers = [await Asker(address).__aenter__() for _ in range(CLIENTS + 1)]
    return Side(name, [Player(asker) for asker in askers[:CLIENTS]], askers[-1])
