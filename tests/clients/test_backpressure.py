"""A store that hangs makes producers wait: memory stays bounded, nothing acknowledged is lost, others are served."""

import asyncio
from pathlib import Path

import pytest

from dray.records import NewRecord, batches, build_batch, records_of
from tests.clients.failing import FailingBroker
from tests.golden.asking import PRODUCE, Asker, batch, produce_request, records_in, schema

pytestmark = pytest.mark.slow

MIB = 1 << 20
CONNECTIONS = 50
PUSHED = 6
"""Batches of 1 MiB that each connection wants to send: 300 MiB together."""
BUFFER_BYTES = 64 * MIB
HELD_BYTES = 128 * MIB
SLACK_BYTES = 64 * MIB
STOP_S = 30


def large(connection: int, n: int) -> bytes:
    value = b"%d-%d " % (connection, n)
    return build_batch([NewRecord(value=value.ljust(MIB - 200, b"."), timestamp=1)])


class Pusher(Asker):
    """A producer that sends as fast as the socket takes it."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(bootstrap)
        self._number = number
        self.answers: list[int] = []
        self.sent = 0

    async def push(self) -> None:
        async def send() -> None:
            for n in range(PUSHED):
                message = produce_request("pushed", {0: large(self._number, n)})
                self.send(schema(PRODUCE), 9, message, n)
                await self.writer.drain()
                self.sent += 1

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            for _ in range(PUSHED):
                _, answer = await self.answer(schema(PRODUCE), 9)
                [topic] = answer.responses
                self.answers.append(topic.partition_responses[0].error_code)


async def stored_names(bootstrap: str) -> list[bytes]:
    names: list[bytes] = []
    async with Asker(bootstrap) as ask:
        offset, end = 0, (await ask.offset_at("pushed", -1)).offset
        while offset < end:
            answer = await ask.fetch("pushed", offset, max_bytes=8 * MIB)
            for one in batches(records_in(answer)):
                names += [bytes(record.value or b"").split()[0] for record in records_of(one)]
                offset += one.record_count
    return names


async def others_are_served(bootstrap: str) -> None:
    """On connections of their own."""
    async with Asker(bootstrap) as other:
        [topic] = (await other.metadata("pushed")).topics
        assert topic.error_code == 0
        assert (await other.fetch("before")).error_code == 0
        assert (await other.offset_at("before", -1)).offset == 1


async def test_a_store_that_hangs_stops_producers_and_nobody_else(tmp_path: Path) -> None:
    """R-090, SV2: 50 connections push 300 MiB at a broker that may hold 64."""
    settings = {
        "wal__max_buffer_bytes": "64MiB",
        "kafka__process_inflight_bytes": "128MiB",
        "kafka__frame_bytes": "16MiB",
        "kafka__connection_inflight_bytes": "16MiB",
    }
    with FailingBroker(tmp_path, **settings) as broker:
        async with Asker(broker.direct) as ask:
            await ask.create("pushed")
            await ask.create("before")
            assert (await ask.produce("before", batch(b"x"))).error_code == 0
        before = peak = broker.memory_bytes
        broker.hang()
        pushers = [Pusher(broker.direct, n) for n in range(CONNECTIONS)]
        async with asyncio.TaskGroup() as group:
            for pusher in pushers:
                await pusher.__aenter__()
                group.create_task(pusher.push())
            still = 0
            while still < 5:  # until nothing moves any more
                moved = sum(pusher.sent for pusher in pushers)
                await asyncio.sleep(0.1)
                peak = max(peak, broker.memory_bytes)
                still = still + 1 if moved == sum(pusher.sent for pusher in pushers) else 0
            assert moved < CONNECTIONS * PUSHED, "nobody had to wait"
            await others_are_served(broker.direct)
            broker.go_on()
        for pusher in pushers:
            pusher.close()
        print(f"memory {before / MIB:.0f} MiB, at most {(peak - before) / MIB:+.0f} MiB; stuck after {moved} batches")
        assert peak - before <= BUFFER_BYTES + HELD_BYTES + SLACK_BYTES
        acked = {
            b"%d-%d" % (pusher._number, n) for pusher in pushers for n, code in enumerate(pusher.answers) if code == 0
        }
        refused = sum(code != 0 for pusher in pushers for code in pusher.answers)
        print(f"acknowledged {len(acked)}, refused {refused}")
        names = await stored_names(broker.direct)
        assert len(set(names)) == len(names)
        assert acked <= set(names)
        assert refused < len(acked)
        assert {code for pusher in pushers for code in pusher.answers} <= {0, 56}


async def test_a_broker_whose_store_hangs_stops_all_the_same(tmp_path: Path) -> None:
    """What was not stored was not acknowledged; the session is given back, so that the next start is clean."""
    with FailingBroker(tmp_path, kafka__stop_timeout="1s") as broker:
        async with Asker(broker.direct) as ask:
            await ask.create("pushed")
            broker.hang()
            ask.send(schema(PRODUCE), 9, produce_request("pushed", {0: batch(b"x")}), 1)
            await others_are_served_by(ask, broker.direct)
            assert broker.stop(STOP_S) == 0
        assert '"node.not_drained"' in "".join(broker.log)
        assert '"node.stopped"' in "".join(broker.log)


async def others_are_served_by(asker: Asker, bootstrap: str) -> None:
    async with Asker(bootstrap) as other:
        await asker.writer.drain()
        assert (await other.metadata("pushed")).topics[0].error_code == 0
