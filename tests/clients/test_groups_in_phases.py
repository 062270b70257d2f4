"""Three brokers, and one of them is killed or paused in each phase of a rebalance: the group comes together again.

How long that took is printed; design says at most twice the larger of the session timeout and the broker's ttl.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from .grouped import Member, eventually, fill, make_topic, share
from .puppets import SESSION_MS, ClassicPuppet, ConsumerPuppet, Puppet
from .three import TTL_S, Three, are_at_home, kept_by
from .watching import watched

pytestmark = pytest.mark.slow
TOPIC, PARTITIONS = "orders", 6
PROMISED_S = 2 * max(SESSION_MS / 1_000, TTL_S)
PATIENCE_S = 5 * PROMISED_S
KEEPER, OTHER, THIRD = 1, 2, 3
WAYS = ["killed", "paused"]
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with ExitStack() as stack:
        home: Path = tmp_path_factory.mktemp("three")
        three = Three(
            stack, home, "groups.initial_delay=1s", f"groups.consumer_session={SESSION_MS}ms",
            "groups.consumer_heartbeat=1s", "groups.consumer_unsettled_heartbeat=200ms",
            "groups.consumer_assignment_interval=1s",
        )  # fmt: skip
        make_topic(three.bootstrap, TOPIC, PARTITIONS)
        yield three


class Company:
    """Members of one group, each of them at another broker."""

    def __init__(self, three: Three, stack: AsyncExitStack, group: str) -> None:
        self.three = three
        self.group = group
        self._stack = stack
        self.puppets: list[Puppet] = []

    def _addresses(self, first: int) -> list[str]:
        others = [broker_id for broker_id in self.three.brokers if broker_id != first]
        return [self.three.brokers[broker_id].kafka for broker_id in (first, *others)]

    async def classic(self, at: int) -> Puppet:
        return await self._begin(ClassicPuppet(self.group, self._addresses(at), PARTITIONS))

    async def consumer(self, at: int) -> Puppet:
        name = f"{self.group}-{len(self.puppets)}"
        return await self._begin(ConsumerPuppet(self.group, self._addresses(at), TOPIC, name))

    async def _begin(self, puppet: Puppet) -> Puppet:
        self.puppets.append(puppet)
        await self._stack.enter_async_context(puppet)
        return puppet

    def is_stable(self, since_s: float) -> bool:
        """Everyone has its part, in the same generation, and was told so since then.

        There is a part for each: one who has none waits for a target that knows of it.
        """
        for puppet in self.puppets:
            if puppet.failure is not None:
                raise puppet.failure
        generations = {puppet.owned[0] for puppet in self.puppets}
        parts = [partition for puppet in self.puppets for partition in puppet.owned[1]]
        confirmed = all(puppet.confirmed_s >= since_s for puppet in self.puppets)
        have_parts = all(puppet.owned[1] for puppet in self.puppets)
        return confirmed and have_parts and len(generations) == 1 and sorted(parts) == list(range(PARTITIONS))

    async def stable(self) -> None:
        since_s = monotonic()
        await self._until(lambda: self.is_stable(since_s), "they come together")

    async def held(self, puppet: Puppet, where: str) -> None:
        await self._until(lambda: puppet.held_at == where, f"the member is at {where}")

    async def _until(self, holds, what: str) -> None:
        end = monotonic() + PATIENCE_S
        while not holds():
            assert monotonic() < end, f"{what}: {[(one.owned, one.held_at) for one in self.puppets]}"
            await asyncio.sleep(0.02)

    async def lose(self, broker_id: int, way: str, held: Sequence[Puppet] = ()) -> None:
        """The broker goes; whoever was held goes on; they come together, and stay so when the broker is back."""
        if way == "killed":
            self.three.kill(broker_id)
        else:
            self.three.pause(broker_id)
        begun = monotonic()
        for puppet in held:
            puppet.release()
        await self.stable()
        print(f"stable again after {monotonic() - begun:.1f} s, promised are {PROMISED_S:.0f} s")
        if way == "killed":
            await asyncio.to_thread(self.three.start, broker_id)
        else:
            self.three.resume(broker_id)
        await asyncio.sleep(1)  # reason: what a broker that was away might do wrong, it would do now
        await self.stable()

    def assert_one_owner(self) -> None:
        owners: dict[tuple[int, int], Puppet] = {}
        for puppet in self.puppets:
            for owned in puppet.history:
                assert owners.setdefault(owned, puppet) is puppet, f"two members had generation and partition {owned}"


@asynccontextmanager
async def company(three: Three) -> AsyncIterator[Company]:
    async with AsyncExitStack() as stack:
        found = Company(three, stack, kept_by(KEEPER, OTHER, THIRD))
        yield found
        found.assert_one_owner()


@pytest.mark.parametrize("way", WAYS)
async def test_in_the_initial_delay(three: Three, way: str) -> None:
    """R-169, T18: another broker ends it."""
    async with company(three) as members:
        for at in (KEEPER, OTHER, THIRD):
            await members.classic(at)
        await asyncio.sleep(0.3)  # reason: their joins reach the log well within the delay
        await members.lose(KEEPER, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lost", [KEEPER, pytest.param(OTHER, marks=LONG)])
async def test_while_members_are_waited_for(three: Three, lost: int, way: str) -> None:
    """R-169, T18: PreparingRebalance; joins are parked at the broker that goes."""
    async with company(three) as members:
        late = await members.classic(THIRD)
        await members.classic(OTHER)
        await members.stable()
        late.hold("rejoin")
        await members.classic(KEEPER)
        await members.held(late, "rejoin")
        await members.lose(lost, way, [late])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("leads", "lost"),
    [(OTHER, OTHER), (THIRD, OTHER), *(pytest.param(leads, KEEPER, marks=LONG) for leads in (KEEPER, THIRD))],
)
async def test_while_the_leader_assigns(three: Three, leads: int, lost: int, way: str) -> None:
    """R-169, K-074, T18: CompletingRebalance; the leader's broker goes, a follower's, the keeper."""
    async with company(three) as members:
        leader = await members.classic(leads)
        await members.stable()
        leader.hold("assign")
        for at in {THIRD, OTHER, KEEPER} - {leads}:
            await members.classic(at)
        await members.held(leader, "assign")
        await members.lose(lost, way, [leader])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_when_all_is_stable(three: Three, protocol: str, way: str) -> None:
    """R-169, R-184, T18: members beat elsewhere, and nobody rebalances."""
    async with company(three) as members:
        for at in (KEEPER, OTHER, THIRD):
            await (members.classic(at) if protocol == "classic" else members.consumer(at))
        await members.stable()
        before = [puppet.owned for puppet in members.puppets]
        await members.lose(KEEPER, way)
        assert [puppet.owned for puppet in members.puppets] == before


@pytest.mark.parametrize("way", WAYS)
async def test_while_a_target_is_due(three: Three, way: str) -> None:
    """R-169, R-184, T18: Assigning; another broker computes it."""
    async with company(three) as members:
        await members.consumer(THIRD)
        await members.stable()
        for at in (OTHER, KEEPER):
            await members.consumer(at)
        await asyncio.sleep(0.1)  # reason: their joins reach the log, and the next target is not due for a second
        await members.lose(KEEPER, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lost", [OTHER, pytest.param(KEEPER, marks=LONG)])
async def test_while_a_member_lets_go(three: Three, lost: int, way: str) -> None:
    """R-169, R-184, T18: UNREVOKED; the keeper goes, or the home of whoever has to let go."""
    async with company(three) as members:
        slow = await members.consumer(OTHER)
        await members.stable()
        slow.hold("revoke")
        for at in (THIRD, KEEPER):
            await members.consumer(at)
        await members.held(slow, "revoke")
        await members.lose(lost, way, [slow])


EACH = 5
HELD = [("confluent/range", "revoke"), ("kafka-python", "assign"), ("confluent-consumer", "revoke")]
"""Who holds up a group where: in PreparingRebalance, in CompletingRebalance, in UNREVOKED."""


@pytest.mark.parametrize("way", ["killed", pytest.param("paused", marks=LONG)])
@pytest.mark.parametrize(("kind", "where"), HELD)
def test_real_clients_in_the_middle_of_a_rebalance(
    three: Three, tmp_path: Path, kind: str, where: str, way: str
) -> None:
    """R-169, R-184, R-190, T18: all of them were at home at the broker that goes."""
    group, hold = kept_by(KEEPER, OTHER, THIRD), tmp_path / "hold"
    topic = f"{group}-{kind.replace('/', '-')}-{way}"
    make_topic(three.bootstrap, topic, PARTITIONS)
    fill(three.bootstrap, topic, PARTITIONS, EACH)
    with ExitStack() as stack:
        stack.enter_context(watched(three.bootstrap, topic, PARTITIONS, group))
        slow = stack.enter_context(Member(kind, three.bootstrap, topic, group, hold=hold))
        share([slow], PARTITIONS)
        hold.write_text(where)
        quick = [stack.enter_context(Member(kind, three.bootstrap, topic, group)) for _ in range(2)]
        eventually("the group waits", lambda: slow.holds)
        if way == "killed":
            three.kill(KEEPER)
        else:
            three.pause(KEEPER)
        hold.unlink()
        begun = monotonic()
        if way == "paused":
            eventually("the broker is given up", lambda: len(three.state().sessions.live) < len(three.brokers))
            three.resume(KEEPER)
        share([slow, *quick], PARTITIONS)
        print(f"stable again after {monotonic() - begun:.1f} s, promised are {PROMISED_S:.0f} s")
        if way == "killed":
            three.start(KEEPER)
        fill(three.bootstrap, topic, PARTITIONS, EACH)
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(2 * EACH)}
        members = [slow, *quick]
        eventually("all is read", lambda: wanted <= {read for member in members for read in member.reads})
        reads = [read for member in members for read in member.reads]
        assert len(reads) == len(set(reads)), "what was committed is not read again"
        eventually("the members have homes", lambda: are_at_home(three.state(), group))
