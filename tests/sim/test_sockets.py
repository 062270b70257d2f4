"""Simulated unix sockets under asyncio's own streams, and the product's log server and client on them."""

import asyncio
import uuid
from pathlib import Path

import pytest

from dray.errors import Unavailable
from dray.log.client import ClientLog, Unreachable
from dray.log.memory import MemoryLog
from dray.log.port import LostReply, Position
from dray.sim.directories import WorldLogServer
from dray.sim.host import SOCKETS
from dray.sim.sockets import Sockets
from dray.sim.world import World

PATH = "/world/echo.sock"


def run(scenario, seed=1):
    world = World(seed)
    try:
        return world.run(scenario)
    finally:
        world.close()


def with_sockets(world):
    sockets = Sockets(world.loop, world.network, SOCKETS)

    async def bury(process):
        await process.ended()
        sockets.bury(process.gate)

    def node(name, boot):
        started = world.node(name, boot).start()
        world.network.start(bury(started))
        return started

    return sockets, node


async def echo_server(process):
    async def serve(reader, writer):
        while data := await reader.read(100):
            writer.write(data.upper())

    await asyncio.start_unix_server(serve, PATH)
    await asyncio.get_running_loop().create_future()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_in_order_and_before_the_end(seed):
    """SK1"""

    async def scenario(world):
        _, node = with_sockets(world)
        node("server", echo_server)
        got = []

        async def client(process):
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_unix_connection(PATH)
            for number in range(50):
                writer.write(f"line {number};".encode())
            got.append(await reader.readuntil(b"LINE 49;"))
            writer.close()

        node("client", client)
        await asyncio.sleep(10)
        assert got == ["".join(f"LINE {number};" for number in range(50)).encode()]

    run(scenario, seed)


@pytest.mark.slow
def test_the_streams_of_a_dead_process_end_and_nobody_listens_there_any_more():
    """SK2"""

    async def scenario(world):
        _, node = with_sockets(world)
        server = node("server", echo_server)
        told = []

        async def client(process):
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_unix_connection(PATH)
            writer.write(b"hello")
            told.append(await reader.readexactly(5))
            told.append(await reader.read())
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_unix_connection(PATH)
            told.append("refused")

        node("client", client)
        await asyncio.sleep(5)
        assert told == [b"HELLO"]
        server.crash()
        await asyncio.sleep(5)
        assert told == [b"HELLO", b"", "refused"]

    run(scenario)


@pytest.mark.slow
def test_a_paused_process_and_a_cut_link_keep_bytes_back_and_a_reset_loses_them():
    """SK1"""

    async def scenario(world):
        sockets, node = with_sockets(world)
        server = node("server", echo_server)
        told = []

        async def client(process):
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_unix_connection(PATH)
            for word in (b"pause", b"links"):
                writer.write(word)
                told.append(await reader.readexactly(5))
            writer.write(b"reset")
            try:
                await reader.readexactly(5)
            except ConnectionResetError:
                told.append("reset")

        await asyncio.sleep(0.5)
        server.pause()
        node("client", client)
        await asyncio.sleep(5)
        assert told == []
        link = world.network.link("client", SOCKETS)
        server.resume()
        await asyncio.sleep(0.004)
        link.cut()
        await asyncio.sleep(5)
        assert len(told) < 2
        link.join()
        await asyncio.sleep(0.001)
        while len(told) < 2:
            await asyncio.sleep(0.001)
        sockets.reset(link)
        await asyncio.sleep(5)
        assert told == [b"PAUSE", b"LINKS", "reset"]

    run(scenario)


@pytest.mark.slow
def test_the_products_log_server_and_client_run_on_them():
    """LG16, LG17: an append whose server dies is unknown, one that finds nobody is surely not."""

    async def scenario(world):
        _, node = with_sockets(world)
        log = MemoryLog()
        path = Path("/world/meta.sock")

        async def serve(process):
            server = WorldLogServer({0: log}, cluster_id=uuid.UUID(int=1))
            await server.listen_unix(path)
            await asyncio.get_running_loop().create_future()

        told = []

        async def write(process):
            await asyncio.sleep(1)
            client = ClientLog(path, 0, cluster_id=uuid.UUID(int=1))
            told.append(await client.append(b"first"))
            follower = client.follow(Position(0))
            told.append(await anext(follower))
            told.append(await client.tail())
            for _ in range(2):
                try:
                    while True:
                        await client.append(b"more")
                except (LostReply, Unavailable) as error:
                    told.append(type(error))
            await client.close()

        server = node("server", serve)
        node("writer", write)
        await asyncio.sleep(2)
        server.crash()
        await asyncio.sleep(20)
        assert told == [1, (1, b"first"), 1, LostReply, Unreachable]

    run(scenario)
