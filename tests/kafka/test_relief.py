"""Producers are not read from while too much waits to be stored; everybody else is."""

import asyncio

from dray.servers.kafka.handler import Context
from dray.servers.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dray.servers.kafka.messages.produce import ProduceRequest, ProduceResponse
from tests.kafka.wire import (
    HEARTBEAT,
    PRODUCE,
    Client,
    eventually,
    heartbeat,
    heartbeat_api,
    produce,
    produce_api,
    running,
)

EACH = 20


class Valve:
    """A pressure that a test turns on and off."""

    def __init__(self) -> None:
        self._relieved = asyncio.Event()
        self._relieved.set()

    @property
    def over(self) -> bool:
        return not self._relieved.is_set()

    def press(self) -> None:
        self._relieved.clear()

    def relieve(self) -> None:
        self._relieved.set()

    async def relief(self) -> None:
        await self._relieved.wait()


class Taken:
    """Counts what was taken; may press the valve at some number."""

    def __init__(self, valve: Valve, presses_at: int = 0) -> None:
        self._valve = valve
        self._presses_at = presses_at
        self.count = 0

    async def handle(self, request: ProduceRequest, context: Context) -> ProduceResponse:
        self.count += 1
        if self.count == self._presses_at:
            self._valve.press()
        return ProduceResponse()


async def echo(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=len(request.group_id))


async def produced(client: Client) -> None:
    await client.ask(PRODUCE, 9, produce(b"x"))


async def test_producers_wait_for_relief_and_others_do_not() -> None:
    """SV2, R-090."""
    valve = Valve()
    taken = Taken(valve)
    async with running(heartbeat_api(echo), produce_api(taken.handle), pressure=valve) as run:
        producers = [await run.connect() for _ in range(5)]
        other = await run.connect()
        await asyncio.gather(*map(produced, producers))
        valve.press()
        waiting = [asyncio.create_task(produced(producer)) for producer in producers]
        await eventually(lambda: run.core.relief.waiting == 5)
        for n in range(20):
            assert (await other.ask(HEARTBEAT, 4, heartbeat("x" * n))).throttle_time_ms == n
        stranger = await run.connect()
        await stranger.ask(HEARTBEAT, 4, heartbeat())  # nobody knows yet whether it will produce
        assert taken.count == 5
        valve.relieve()
        await asyncio.gather(*waiting)
        assert taken.count == 10
        assert run.core.relief.waiting == 0


async def test_who_waits_goes_on_only_as_long_as_the_relief_lasts() -> None:
    """SV2: one after another; when the second is too much again, the others go on waiting."""
    valve = Valve()
    taken = Taken(valve, presses_at=8 + EACH + 1)
    async with running(produce_api(taken.handle), pressure=valve) as run:
        producers = [await run.connect() for _ in range(8)]
        await asyncio.gather(*map(produced, producers))
        valve.press()
        for producer in producers:
            for _ in range(EACH):
                producer.send(PRODUCE, 9, produce(b"x"))
        await eventually(lambda: run.core.relief.waiting == 8)
        assert taken.count == 8
        valve.relieve()
        await eventually(lambda: valve.over)
        for _ in range(100):  # whoever would be woken all the same is woken by now
            await asyncio.sleep(0)
        assert run.core.relief.waiting >= 5
        assert taken.count <= 8 + 3 * EACH


async def test_a_client_that_has_said_all_while_it_waited_is_still_answered() -> None:
    valve = Valve()
    taken = Taken(valve)
    async with running(produce_api(taken.handle), pressure=valve) as run:
        client = await run.connect()
        await produced(client)
        valve.press()
        client.send(PRODUCE, 9, produce(b"x"), 7)
        await eventually(lambda: run.core.relief.waiting == 1)
        client.writer.write_eof()
        for _ in range(20):
            await asyncio.sleep(0)
        valve.relieve()
        correlation, _ = await client.answer(PRODUCE, 9)
        assert correlation == 7
        assert await client.closed()


async def test_a_stop_does_not_wait_for_relief_and_a_client_that_leaves_leaves_the_line() -> None:
    valve = Valve()
    taken = Taken(valve)
    async with running(produce_api(taken.handle), pressure=valve) as run:
        one, two = await run.connect(), await run.connect()
        await asyncio.gather(produced(one), produced(two))
        valve.press()
        for client in (one, two):
            client.send(PRODUCE, 9, produce(b"x"))
            client.send(PRODUCE, 9, produce(b"x"))
        await eventually(lambda: run.core.relief.waiting == 2)
        one.writer.transport.abort()
        await run.server.stop()
        assert run.core.relief.waiting == 0
