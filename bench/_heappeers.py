"""Queues of others, as their clients have them; run in the environment of `tools.peers.python`.

Each adapter uses what its client offers for many jobs in one process. What an
answer is worth differs, and stands beside the figures in `bench.heaps_grpc`.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

Taken = Callable[[bytes], None]
Acked = Callable[[], None]
CONNECTIONS = 64
POOL = 16
"""Connections to PostgreSQL, all made before the load: more of them are slower on two cores."""
QUEUE = "jobs"
SETTLED_S = 30.0
FEW_S = 0.005


class Procrastinate:
    """One worker of many jobs at a time; a finished job is deleted."""

    def __init__(self, address: str) -> None:
        import procrastinate

        connector = procrastinate.PsycopgConnector(conninfo=address, min_size=POOL, max_size=POOL)
        self._app = procrastinate.App(connector=connector)
        self._connector = connector
        self._taken: Taken = lambda body: None
        self._acked: Acked = lambda: None
        self._task = self._app.task(name="cycle", queue=QUEUE)(self._cycle)

    async def _cycle(self, body: str) -> None:
        self._taken(body.encode())
        self._acked()

    async def open(self) -> None:
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()
        await self._connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")

    async def put(self, body: bytes) -> None:
        await self._task.defer_async(body=body.decode())

    async def work(self, workers: int, taken: Taken, acked: Acked) -> None:
        self._taken, self._acked = taken, acked
        await self._app.run_worker_async(
            queues=[QUEUE], concurrency=workers, delete_jobs="always", install_signal_handlers=False,
            shutdown_graceful_timeout=5.0, fetch_job_polling_interval=0.1,
        )  # fmt: skip

    async def settled(self) -> None:
        await _until(self._is_empty)

    async def _is_empty(self) -> bool:
        row = await self._connector.execute_query_one_async("SELECT count(*) AS left FROM procrastinate_jobs")
        return row["left"] == 0

    async def close(self) -> None:
        await self._app.close_async()


class PgQueuer:
    """One manager, jobs taken and logged in batches of as many as there are workers; a pool for producers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pool: Any = None

    async def open(self) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgPoolDriver
        from pgqueuer.queries import Queries

        self._pool = await asyncpg.create_pool(self._address, min_size=POOL, max_size=POOL)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        if not await self._pool.fetchval("SELECT to_regclass('pgqueuer') IS NOT NULL"):
            await self._queries.install()
        await self._pool.execute("TRUNCATE pgqueuer")

    async def put(self, body: bytes) -> None:
        await self._queries.enqueue([QUEUE], [body], [0])

    async def work(self, workers: int, taken: Taken, acked: Acked) -> None:
        from pgqueuer.qm import QueueManager

        manager = QueueManager(self._queries)

        @manager.entrypoint(QUEUE)
        async def cycle(job: Any) -> None:
            taken(job.payload)
            acked()

        try:
            await manager.run(dequeue_timeout=timedelta(seconds=0.1), batch_size=workers)
        finally:
            manager.shutdown.set()

    async def settled(self) -> None:
        await _until(self._is_empty)

    async def _is_empty(self) -> bool:
        return bool(await self._pool.fetchval("SELECT count(*) FROM pgqueuer") == 0)

    async def close(self) -> None:
        self._pool.terminate()


class Beanstalkd:
    """Its protocol is lines: one connection for each producer and each worker."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self) -> None:
        self._free = [await self._connect() for _ in range(CONNECTIONS)]

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port)

    async def put(self, body: bytes) -> None:
        reader, writer = connection = self._free.pop()
        writer.write(b"put 0 0 60 %d\r\n%b\r\n" % (len(body), body))
        answer = await reader.readline()
        assert answer.startswith(b"INSERTED"), answer
        self._free.append(connection)

    async def work(self, workers: int, taken: Taken, acked: Acked) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(taken, acked))

    async def _work(self, taken: Taken, acked: Acked) -> None:
        reader, writer = await self._connect()
        try:
            while True:
                writer.write(b"reserve\r\n")
                word, number, size = (await reader.readline()).split()
                assert word == b"RESERVED", word
                taken((await reader.readexactly(int(size) + 2))[:-2])
                writer.write(b"delete %b\r\n" % number)
                answer = await reader.readline()
                assert answer == b"DELETED\r\n", answer
                acked()
        finally:
            writer.close()

    async def settled(self) -> None:
        """Every ack was answered."""

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()


class RabbitMq:
    """A quorum queue: publishers with confirms, one consumer with a prefetch of as many as there are workers."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def open(self) -> None:
        import aio_pika

        self._make = aio_pika.Message
        self._durable = aio_pika.DeliveryMode.PERSISTENT
        self._connection = await aio_pika.connect(self._address)
        self._publishing = await self._connection.channel(publisher_confirms=True)
        self._consuming = await self._connection.channel()
        arguments = {"x-queue-type": "quorum"}
        self._queue = await self._consuming.declare_queue(
            f"{QUEUE}-{time.time_ns()}", durable=True, arguments=arguments
        )

    async def put(self, body: bytes) -> None:
        message = self._make(body, delivery_mode=self._durable)
        await self._publishing.default_exchange.publish(message, routing_key=self._queue.name)

    async def work(self, workers: int, taken: Taken, acked: Acked) -> None:
        await self._consuming.set_qos(prefetch_count=workers)

        async def cycle(message: Any) -> None:
            taken(message.body)
            await message.ack()
            acked()

        tag = await self._queue.consume(cycle)
        try:
            await asyncio.Event().wait()
        finally:
            await self._queue.cancel(tag)

    async def settled(self) -> None:
        """An ack has no answer in AMQP: nobody can wait for it."""

    async def close(self) -> None:
        await self._queue.delete(if_unused=False, if_empty=False)
        await self._connection.close()


class Nats:
    """A work queue in a file; messages are fetched for whoever is free, and an ack is a request."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def open(self) -> None:
        import nats
        from nats.js.api import RetentionPolicy, StorageType

        self._connection = await nats.connect(self._address)
        self._stream = self._connection.jetstream()
        self._name = f"{QUEUE}-{time.time_ns()}"
        await self._stream.add_stream(
            name=self._name, subjects=[self._name], storage=StorageType.FILE, retention=RetentionPolicy.WORK_QUEUE
        )

    async def put(self, body: bytes) -> None:
        await self._stream.publish(self._name, body, stream=self._name)

    async def work(self, workers: int, taken: Taken, acked: Acked) -> None:
        subscribed = await self._stream.pull_subscribe(self._name, durable="workers", stream=self._name)
        free = asyncio.Semaphore(workers)

        async def cycle(message: Any) -> None:
            taken(message.data)
            await message.ack_sync(timeout=30)
            acked()
            free.release()

        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                wanted = 1
                while wanted < workers and not free.locked():
                    await free.acquire()
                    wanted += 1
                for message in await self._fetch(subscribed, wanted):
                    group.create_task(cycle(message))
                    wanted -= 1
                for _ in range(wanted):
                    free.release()

    async def _fetch(self, subscribed: Any, wanted: int) -> list[Any]:
        import nats

        try:
            found: list[Any] = await subscribed.fetch(wanted, timeout=1)
        except nats.errors.TimeoutError:
            return []
        return found

    async def settled(self) -> None:
        """Every ack was answered."""

    async def close(self) -> None:
        await self._stream.delete_stream(self._name)
        await self._connection.close()


async def _until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(SETTLED_S):
        while not await is_so():  # noqa: ASYNC110  # its server has to be asked
            await asyncio.sleep(FEW_S)
