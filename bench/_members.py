"""Members of one group, all in one process; a program that tells JSON lines.

    python -m bench._members together HOST:PORT TOPIC PROTOCOL --members 50 --partitions 200
    python -m bench._members settled HOST:PORT TOPIC PROTOCOL --members 1000

`together` starts librdkafka consumers at once and tells how long it took until
they shared all partitions evenly. `settled` has members that only join and
beat, a connection each; it tells when all are in one generation, and keeps
them until its input ends.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import struct
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

import uvloop
from confluent_kafka import Consumer

from dray.servers.kafka.codec import Message, decode, encode
from dray.servers.kafka.messages import consumer_group_heartbeat, heartbeat, join_group, sync_group
from dray.servers.kafka.messages.request_header import CODEC as REQUEST_HEADER
from dray.servers.kafka.messages.request_header import RequestHeader
from dray.servers.kafka.messages.response_header import CODEC as RESPONSE_HEADER

_TOGETHER_SECONDS: Final = 120.0
_SETTLED_SECONDS: Final = 240.0
_STEADY_SECONDS: Final = 7.0
"""Longer than a heartbeat and a pause between two targets: then nothing more is on its way."""
_SESSION_MS: Final = 45_000
_BEAT_SECONDS: Final = 3.0
_AT_ONCE: Final = 50
_REJOIN: Final = frozenset({22, 25, 27, 79})


def together(options: argparse.Namespace) -> dict[str, object]:
    group, begun = f"bench-{uuid.uuid4()}", time.perf_counter()
    protocol = {"group.protocol": "consumer"} if options.protocol == "consumer" else {}
    consumers = [
        Consumer({"bootstrap.servers": options.address, "group.id": group, "log_level": 0, **protocol})
        for _ in range(options.members)
    ]
    for consumer in consumers:
        consumer.subscribe([options.topic])
    even = options.partitions // options.members
    while True:
        for consumer in consumers:
            consumer.poll(0.001)
        owned = [{one.partition for one in consumer.assignment()} for consumer in consumers]
        if all(len(one) == even for one in owned) and len(set().union(*owned)) == options.partitions:
            break
        if time.perf_counter() - begun > _TOGETHER_SECONDS:
            sys.exit(f"they have {sorted(map(len, owned))} partitions")
    return {"seconds": time.perf_counter() - begun}


class Member:
    """One member on a connection of its own."""

    def __init__(self, options: argparse.Namespace, group: str, number: int) -> None:
        self._options = options
        self._group = group
        self._correlation = itertools.count()
        self._id = f"member-{number}-{uuid.uuid4()}" if options.protocol == "consumer" else ""
        self.generation = -1

    async def run(self) -> None:
        host, _, port = self._options.address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        await (self._consume() if self._options.protocol == "consumer" else self._be_classic())

    async def _ask(self, module: Any, version: int, message: Message) -> Any:
        schema, correlation = module.SCHEMA, next(self._correlation)
        flexible = version >= schema.flexible
        header = RequestHeader(schema.key, version, correlation, "bench")
        parts = (*encode(REQUEST_HEADER.write[1 + flexible], header), *encode(schema.request.write[version], message))
        body = b"".join(parts)
        self._writer.write(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = memoryview(await self._reader.readexactly(size))
        _, position, _ = decode(RESPONSE_HEADER.read[int(flexible)], frame, 0)
        return decode(schema.response.read[version], frame, position)[0]

    async def _consume(self) -> None:
        epoch, owned, first = 0, [], True
        while True:
            request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                group_id=self._group, member_id=self._id, member_epoch=epoch, topic_partitions=owned,
                rebalance_timeout_ms=60_000 if first else -1,
                subscribed_topic_names=[self._options.topic] if first else None,
            )  # fmt: skip
            told = await self._ask(consumer_group_heartbeat, 1, request)
            if told.error_code:
                sys.exit(f"a heartbeat was answered with {told.error_code}: {told.error_message}")
            epoch, first = told.member_epoch, False
            self.generation = epoch
            if told.assignment is not None and list(told.assignment.topic_partitions) != list(owned or ()):
                owned = list(told.assignment.topic_partitions)
                continue
            owned = None
            await asyncio.sleep(told.heartbeat_interval_ms / 1_000)

    async def _be_classic(self) -> None:
        while True:
            request = join_group.JoinGroupRequest(
                group_id=self._group, session_timeout_ms=_SESSION_MS, rebalance_timeout_ms=60_000, member_id=self._id,
                protocol_type="bench", protocols=[join_group.JoinGroupRequestProtocol(name="even")],
            )  # fmt: skip
            joined = await self._ask(join_group, 9, request)
            self._id = joined.member_id
            if self._is_over(joined.error_code):
                continue
            rows = [
                sync_group.SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"work")
                for one in joined.members
            ]
            synced = await self._ask(sync_group, 5, sync_group.SyncGroupRequest(
                group_id=self._group, generation_id=joined.generation_id, member_id=self._id, protocol_type="bench",
                protocol_name="even", assignments=rows,
            ))  # fmt: skip
            if self._is_over(synced.error_code):
                continue
            self.generation = joined.generation_id
            await self._beat()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            request = heartbeat.HeartbeatRequest(
                group_id=self._group, generation_id=self.generation, member_id=self._id
            )
            told = await self._ask(heartbeat, 4, request)
            if self._is_over(told.error_code):
                return

    def _is_over(self, error: int) -> bool:
        if error and error not in _REJOIN:
            sys.exit(f"a member was told {error}")
        if error == 25:
            self._id = ""
        return error != 0


async def settled(options: argparse.Namespace) -> dict[str, object]:
    group = f"bench-{uuid.uuid4()}"
    members = [Member(options, group, number) for number in range(options.members)]
    async with asyncio.TaskGroup() as tasks:
        running = []
        for number, member in enumerate(members):
            running.append(tasks.create_task(member.run()))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0.01)
        begun = time.perf_counter()
        generation, since = -1, begun
        async with asyncio.timeout(_SETTLED_SECONDS):
            while generation < 0 or time.perf_counter() - since < _STEADY_SECONDS:
                await asyncio.sleep(0.1)
                found = {one.generation for one in members}
                now = found.pop() if len(found) == 1 else -1
                if now != generation:
                    generation, since = now, time.perf_counter()
        seconds = since - begun
        print(json.dumps({"settled": len(members), "seconds": seconds}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        stayed = {one.generation for one in members} == {generation}
        for task in running:
            task.cancel()
    return {"settled": len(members), "stayed": stayed}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench._members")
    parser.add_argument("mode", choices=["together", "settled"])
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("protocol", choices=["classic", "consumer"])
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=200)
    options = parser.parse_args(argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, options.members + 256)), hard))
    said = together(options) if options.mode == "together" else uvloop.run(settled(options))
    print(json.dumps(said), flush=True)
    sys.stdout.flush()
    if options.mode == "together":
        os._exit(0)  # fifty consumers that leave one after the other are not what is measured


if __name__ == "__main__":
    main(sys.argv[1:])
