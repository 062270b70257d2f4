"""Producers are not read from while too much waits to be stored; everybody else is."""

import asyncio

from dray.servers.kafka.admission.relief import Relief
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

    def __init__(self, high: int = 1 << 30) -> None:
        self.high = high
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
    """Counts what was taken."""

    def __init__(self) -> None:
        self.count = 0

    async def handle(self, request: ProduceRequest, context: Context) -> ProduceResponse:
        self.count += 1
        return ProduceResponse()


async def echo(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=len(request.group_id))


async def produced(client: Client) -> None:
    await client.ask(PRODUCE, 9, produce(b"x"))


async def test_producers_wait_for_relief_and_others_do_not() -> None:
    """SV2, R-090."""
    valve = Valve()
    taken = Taken()
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


class Standing:
    """A connection in line that takes a request of some size when it is asked to go on."""

    def __init__(self, relief: Relief, called: list[int], number: int) -> None:
        self._relief = relief
        self._called = called
        self._number = number

    def go_on(self) -> None:
        if self._relief.admits(self):
            self._called.append(self._number)
            self._relief.begin(40)


async def test_who_waits_goes_on_in_line_only_as_long_as_the_relief_lasts() -> None:
    """SV2: nobody overtakes, and who does not fit goes on waiting in its place."""
    valve, called = Valve(high=100), list[int]()
    async with asyncio.TaskGroup() as tasks:
        relief = Relief(valve, tasks)
        line = [Standing(relief, called, number) for number in range(7)]
        valve.press()
        for waiter in line[:6]:
            waiter.go_on()
        valve.relieve()
        line[6].go_on()  # it comes while there is room, and others wait for it
        assert called == []
        await eventually(lambda: called == [0, 1, 2])
        assert relief.waiting == 4
        relief.end(40)  # below the mark, and over three quarters of it
        await asyncio.sleep(0)
        assert called == [0, 1, 2]
        relief.end(40)
        await eventually(lambda: called == [0, 1, 2, 3, 4])
        relief.end(120)
        await eventually(lambda: called == list(range(7)))
        assert relief.waiting == 0


async def test_what_many_send_at_once_is_counted_before_its_handlers_run() -> None:
    """SV2, R-090: a service that counts validated batches would see them too late."""
    valve, open_door, begun = Valve(high=100_000), asyncio.Event(), 0

    async def handle(request: ProduceRequest, context: Context) -> ProduceResponse:
        nonlocal begun
        begun += 1
        await open_door.wait()
        return ProduceResponse()

    async with running(produce_api(handle), pressure=valve) as run:
        producers = [await run.connect() for _ in range(10)]
        open_door.set()
        await asyncio.gather(*map(produced, producers))
        open_door.clear()
        begun = 0
        for producer in producers:
            for number in range(EACH):
                producer.send(PRODUCE, 9, produce(bytes(10_000)), number)
        await eventually(lambda: run.core.relief.waiting == 10 or begun > 10)
        assert begun <= 10, "ten of them are the mark"
        open_door.set()
        for producer in producers:
            assert [(await producer.answer(PRODUCE, 9))[0] for _ in range(EACH)] == list(range(EACH))
        assert begun == 10 * EACH


async def test_a_client_that_has_said_all_while_it_waited_is_still_answered() -> None:
    valve = Valve()
    taken = Taken()
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
    taken = Taken()
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
