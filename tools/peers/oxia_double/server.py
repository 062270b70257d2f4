"""The servers of the double: they speak Oxia's protocol on ports of 127.0.0.1, and go wrong when they are told to.

All nodes are of one process and share their shards, so a write is replicated
at once. Orders come as lines of JSON on a port of their own; see `ORDERS`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, Protocol

import grpc
import grpc.aio

from dray.log.oxia import oxia_pb2 as pb
from tools.peers.oxia_double.shard import Batch, CannotApply, CannotWrite, Kept, Shard

NAMESPACE: Final = "default"
SERVICES: Final = ("io.oxia.proto.v1.OxiaClient", "io.streamnative.oxia.proto.OxiaClient")
_MESSAGE_BYTES: Final = 256 << 20
_SCAN_RECORDS: Final = 1000
_SCAN_BYTES: Final = 2 << 20
_NOT_LEADER: Final = "oxia: node is not leader"


class Context(Protocol):
    """What gRPC gives to a handler."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...


@dataclass(slots=True)
class Faults:
    """What goes wrong from now on."""

    lose_answers: int = 0
    """Writes that are done, and nobody is told."""
    drop_writes: int = 0
    """Writes that are not done, and nobody is told."""
    early_s: float = 0.0
    """How long followers are told of an entry before it can be read."""
    deaf: bool = False
    """Followers are told of nothing."""
    old_name: bool = False
    """The service is known by its older name only, from the next crash on."""
    uninitialized: bool = False
    """Nobody knows yet who leads."""


@dataclass(slots=True, eq=False)
class Ear:
    """One stream of sequence updates: it keeps the last key that was not sent yet, and no others."""

    sequence: str
    latest: str | None = None
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, key: str) -> None:
        self.latest = key
        self.bell.set()


class Node:
    """One server."""

    def __init__(self, cluster: "Cluster", number: int, port: int) -> None:
        self.number = number
        self.port = port
        self._cluster = cluster
        self._server: grpc.aio.Server | None = None
        self.ears: set[Ear] = set()
        self._moved = asyncio.Event()
        self.stale: dict[int, Shard] | None = None
        """What it shows while it does not know that others have gone on without it."""
        self.believes: dict[int, int] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        options = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", -1)]
        self._server = grpc.aio.server(options=options)
        stream = grpc.unary_stream_rpc_method_handler
        for service in SERVICES[1:] if self._cluster.faults.old_name else SERVICES:
            handlers = grpc.method_handlers_generic_handler(
                service,
                {
                    "GetShardAssignments": stream(
                        self._assignments, pb.AssignmentsRequest.FromString, pb.Assignments.SerializeToString
                    ),
                    "Write": grpc.unary_unary_rpc_method_handler(
                        self._write, pb.WriteRequest.FromString, pb.WriteResponse.SerializeToString
                    ),
                    "Read": stream(self._read, pb.ReadRequest.FromString, pb.ReadResponse.SerializeToString),
                    "RangeScan": stream(
                        self._scan, pb.RangeScanRequest.FromString, pb.RangeScanResponse.SerializeToString
                    ),
                    "GetSequenceUpdates": stream(
                        self._sequence, pb.SequenceRequest.FromString, pb.SequenceResponse.SerializeToString
                    ),
                },
            )
            self._server.add_generic_rpc_handlers([handlers])
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    @property
    def is_up(self) -> bool:
        return self._server is not None

    # -- who leads -------------------------------------------------------------

    async def _assignments(self, request: pb.AssignmentsRequest, context: Context) -> AsyncIterator[pb.Assignments]:
        if self._cluster.faults.uninitialized:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "oxia: server not initialized yet")
        if (request.namespace or NAMESPACE) != NAMESPACE:
            await context.abort(grpc.StatusCode.NOT_FOUND, "oxia: namespace not found")
        while True:
            moved = self._moved
            leaders = self._cluster.leaders if self.believes is None else self.believes
            yield self._cluster.assignments(leaders)
            await moved.wait()

    async def _led(self, shard: int, context: Context) -> Shard:
        """The shard, if this node leads it; a node that does not know better shows what it knew."""
        if self.stale is not None and self.believes is not None and self.believes.get(shard) == self.number:
            return self.stale[shard]
        if self._cluster.leaders.get(shard) != self.number:
            await context.abort(grpc.StatusCode.ABORTED, _NOT_LEADER)
        return self._cluster.shards[shard]

    # -- calls -----------------------------------------------------------------

    async def _write(self, request: pb.WriteRequest, context: Context) -> pb.WriteResponse:
        shard = await self._led(request.shard, context)
        if self.stale is not None:
            await asyncio.Event().wait()  # nobody follows it any more: it waits for them as long as its client does
        faults = self._cluster.faults
        if faults.drop_writes:
            faults.drop_writes -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the request was lost on its way")
        try:
            answer = await self._cluster.write(shard, request)
        except CannotWrite as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except CannotApply as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        if faults.lose_answers:
            faults.lose_answers -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost on its way")
        return answer

    async def _read(self, request: pb.ReadRequest, context: Context) -> AsyncIterator[pb.ReadResponse]:
        shard = await self._led(request.shard, context)
        answer = pb.ReadResponse()
        for get in request.gets:
            await asyncio.sleep(0)  # what is read in one call is no snapshot
            key = shard.find(get.key, get.comparison)
            if key is None:
                answer.gets.append(pb.Record(status=pb.KEY_NOT_FOUND))
                continue
            found = _record(key, shard.records[key], get.include_value)
            if get.comparison == pb.EQUAL:
                found.ClearField("key")
            answer.gets.append(found)
        yield answer

    async def _scan(self, request: pb.RangeScanRequest, context: Context) -> AsyncIterator[pb.RangeScanResponse]:
        shard = await self._led(request.shard, context)
        found = [_record(key, shard.records[key], True) for key in shard.between(request.start, request.end)]
        page, size = pb.RangeScanResponse(), 0
        for record in found:
            page.records.append(record)
            size += len(record.value)
            if len(page.records) == _SCAN_RECORDS or size >= _SCAN_BYTES:
                yield page
                page, size = pb.RangeScanResponse(), 0
        if page.records:
            yield page

    async def _sequence(self, request: pb.SequenceRequest, context: Context) -> AsyncIterator[pb.SequenceResponse]:
        shard = await self._led(request.shard, context)
        ear = Ear(request.key)
        self.ears.add(ear)
        try:
            last = shard.between(f"{request.key}-{0:020d}", f"{request.key}-{(1 << 63) - 1:020d}")
            if last:
                ear.tell(last[-1])
            while self.stale is not None or self._cluster.leaders.get(request.shard) == self.number:
                await ear.bell.wait()
                ear.bell.clear()
                if ear.latest is not None:
                    latest, ear.latest = ear.latest, None
                    yield pb.SequenceResponse(highest_key=latest)
        finally:
            self.ears.discard(ear)

    def ring(self) -> None:
        """Somebody else leads."""
        self._moved.set()
        self._moved = asyncio.Event()
        for ear in self.ears:
            ear.bell.set()


class Cluster:
    """All nodes and shards."""

    def __init__(
        self, directory: Path, ports: Iterable[int], shards: int, *, is_natural: bool, segment_bytes: int
    ) -> None:
        self.faults = Faults()
        self.shards = {
            number: Shard(directory, number, is_natural=is_natural, segment_bytes=segment_bytes)
            for number in range(shards)
        }
        self.nodes = [Node(self, number, port) for number, port in enumerate(ports)]
        self.leaders = {number: 0 for number in self.shards}
        self._turns = {number: asyncio.Lock() for number in self.shards}

    def assignments(self, leaders: dict[int, int]) -> pb.Assignments:
        """The whole range of hashes in equal parts."""
        found = pb.Shards(router=pb.XXHASH3)
        each = (1 << 32) // len(self.shards)
        for number in self.shards:
            last = (1 << 32) - 1 if number == len(self.shards) - 1 else (number + 1) * each - 1
            leader = self.nodes[leaders[number]].address if number in leaders else ""
            hashes = pb.HashRange(first=number * each, last=last)
            found.shards.append(pb.Shard(shard=number, leader=leader, hashes=hashes))
        return pb.Assignments(namespaces={NAMESPACE: found})

    async def write(self, shard: Shard, request: pb.WriteRequest) -> pb.WriteResponse:
        """One request: durable, told of, and only then to be read."""
        async with self._turns[shard.number]:
            shard.append(request.SerializeToString())
            try:
                batch = shard.prepare(request)
            except CannotApply:
                self._announce(Batch(told=[(put.key, "") for put in request.puts if put.sequence_deltas]))
                raise
            self._announce(batch)
            if self.faults.early_s:
                await asyncio.sleep(self.faults.early_s)
            shard.commit(batch)
            return batch.answer

    def _announce(self, batch: Batch) -> None:
        if self.faults.deaf:
            return
        for node in self.nodes:
            for ear in node.ears:
                for sequence, key in batch.told:
                    if ear.sequence == sequence:
                        ear.tell(key)

    # -- orders ----------------------------------------------------------------

    async def fault(self, **changes: float) -> None:
        for name, value in changes.items():
            if not hasattr(self.faults, name):
                raise ValueError(f"no such fault: {name}")
            setattr(self.faults, name, value)
        self._ring()

    async def lead(self, node: int, shard: int | None = None) -> None:
        """Another node leads a shard, or all of them; who led knows it."""
        self.leaders.update({number: node for number in self.shards if shard in (None, number)})
        self._ring()

    async def depose(self, node: int) -> None:
        """Another node leads; who led is cut off from the others, and does not know it."""
        was = self.nodes[self.leaders[0]]
        was.believes = dict(self.leaders)
        was.stale = {number: one.copy() for number, one in self.shards.items()}
        self.leaders = {number: node for number in self.shards}
        for other in self.nodes:
            if other is not was:
                other.ring()

    async def heal(self) -> None:
        """Everybody knows who leads."""
        for node in self.nodes:
            node.stale = node.believes = None
        self._ring()

    async def down(self, node: int) -> None:
        await self.nodes[node].stop()

    async def up(self, node: int) -> None:
        await self.nodes[node].start()

    async def full(self, on: bool) -> None:
        for shard in self.shards.values():
            shard.full = on

    async def announce(self, sequence: str, key: str) -> None:
        """Tell followers of something that is not there."""
        self._announce(Batch(told=[(sequence, key)]))

    async def ears(self) -> int:
        return sum(len(node.ears) for node in self.nodes)

    async def keys(self) -> list[str]:
        return [key for shard in self.shards.values() for key in shard.between("", "")]

    async def crash(self, lose: int = 0) -> None:
        """End at once, and begin with what is on disk but for the last requests of each shard."""
        await self._begin_anew(lambda shard: shard.load(lose))

    async def wipe(self) -> None:
        await self._begin_anew(lambda shard: shard.wipe())

    async def _begin_anew(self, load: Callable[[Shard], None]) -> None:
        serving = [node for node in self.nodes if node.is_up]
        for node in serving:
            await node.stop()
        for shard in self.shards.values():
            load(shard)
        for node in serving:
            await node.start()

    def _ring(self) -> None:
        for node in self.nodes:
            node.ring()


ORDERS: Final = ("fault", "lead", "depose", "heal", "down", "up", "full", "announce", "ears", "keys", "crash", "wipe")
"""What a line may order: {"order": one of these, and what it takes}."""


async def take_orders(cluster: Cluster, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A line for each, and a line with what came of it."""
    while line := await reader.readline():
        wanted = json.loads(line)
        order = wanted.pop("order")
        try:
            if order not in ORDERS:
                raise ValueError(f"no such order: {order}")
            answer = {"done": await getattr(cluster, order)(**wanted)}
        except (TypeError, ValueError) as error:
            answer = {"failed": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
    writer.close()


def _record(key: str, kept: Kept, has_value: bool) -> pb.Record:
    found = pb.Record(status=pb.OK, version=pb.Version(version=kept.version), key=key)
    if has_value:
        found.value = kept.value
    return found
