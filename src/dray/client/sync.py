"""The same client for programs without asyncio: every call blocks, a loop in a thread does the work.

    with Client("127.0.0.1:7432") as client:
        client.heap("jobs").enqueue({"id": 1})
        for job in client.heap("jobs").pop():
            with job:
                print(job.payload)

Leases are renewed as in the asynchronous client. It may be used from several
threads.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TypeVar, Unpack

from dray.client import client as asynchronous
from dray.client import heap as heaps
from dray.client import job as jobs
from dray.client import keys
from dray.client.client import ADDRESS, HeapInfo, HeapOptions, Mode
from dray.client.codecs import JSON_OR_BYTES, Codec, Payload
from dray.client.consumer import Consumer as AsyncConsumer
from dray.client.errors import ClientClosed, LeaseLost
from dray.client.grpc import Tls
from dray.client.heap import NewMessage, Peeked, State, Stats
from dray.client.job import Reject, Retry, Span
from dray.client.keys import CreatedKey, KeyInfo, KeyRole
from dray.client.producer import Enqueued
from dray.client.transport import Transport

_T = TypeVar("_T")


class Client:
    """Heaps of a cluster, blocking."""

    def __init__(
        self, endpoints: str | Sequence[str] = ADDRESS, *, api_key: str | None = None, tls: Tls | None = None,
        producer_id: str | None = None, epoch: int | None = None, timeout: float = 10.0,
        codec: Codec = JSON_OR_BYTES, transport: Transport | None = None,
    ) -> None:  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dray-client", daemon=True)
        self._thread.start()
        self._closed = False

        async def make() -> asynchronous.Client:
            return asynchronous.Client(
                endpoints, api_key=api_key, tls=tls, producer_id=producer_id, epoch=epoch, timeout=timeout,
                codec=codec, transport=transport,
            )  # fmt: skip

        try:
            self._client = self.wait(make())
        except BaseException:
            self._end()
            raise

    def wait(self, work: Coroutine[None, None, _T]) -> _T:
        """Run something of the asynchronous client, and wait for it."""
        if self._closed:
            work.close()
            raise ClientClosed("the client is closed")
        running: concurrent.futures.Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, drain: float = 10.0) -> None:
        if not self._closed:
            self.wait(self._client.close(drain=drain))
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def keys(self) -> "BlockingKeys":
        return BlockingKeys(self, self._client.keys)

    def heap(self, name: str) -> "Heap":
        return Heap(self, self._client.heap(name))

    def make_heap(
        self, name: str, *, mode: Mode = Mode.MIN, partitions: int = 1, **config: Unpack[HeapOptions]
    ) -> HeapInfo:
        return self.wait(self._client.make_heap(name, mode=mode, partitions=partitions, **config))

    def describe_heap(self, name: str) -> HeapInfo:
        return self.wait(self._client.describe_heap(name))

    def alter_heap(
        self, name: str, *, expected_revision: int | None = None, partitions: int | None = None,
        **config: Unpack[HeapOptions],
    ) -> HeapInfo:  # fmt: skip
        return self.wait(
            self._client.alter_heap(name, expected_revision=expected_revision, partitions=partitions, **config)
        )

    def heaps(self, prefix: str = "") -> list[HeapInfo]:
        return self.wait(self._client.heaps(prefix))

    def delete_heap(self, name: str, *, force: bool = True, confirmation: str = "") -> None:
        self.wait(self._client.delete_heap(name, force=force, confirmation=confirmation))

    def enqueue_batch(self, items: Sequence[tuple[str, NewMessage]]) -> list[Enqueued]:
        """Put all messages in, each into the heap of its name, or none."""
        return self.wait(self._client.enqueue_batch(items))

    def stats(self) -> list[Stats]:
        return self.wait(self._client.stats())


class Heap:
    """One heap, blocking."""

    def __init__(self, client: Client, heap: heaps.Heap) -> None:
        self.name = heap.name
        self.dlq = DeadLetterBox(client, heap.dlq)
        self._client = client
        self._heap = heap

    def enqueue(
        self, payload: Payload, *, priority: int = 0, delay: Span | None = None, not_before: datetime | None = None,
        key: str | None = None, dedup_key: str | None = None, max_retries: int | None = None,
        headers: Mapping[str, str] | None = None, seq: int | None = None,
    ) -> Enqueued:  # fmt: skip
        return self._client.wait(
            self._heap.enqueue(
                payload, priority=priority, delay=delay, not_before=not_before, key=key, dedup_key=dedup_key,
                max_retries=max_retries, headers=headers, seq=seq,
            )
        )  # fmt: skip

    def enqueue_batch(self, items: Sequence[NewMessage]) -> list[Enqueued]:
        return self._client.wait(self._heap.enqueue_batch(items))

    def pop(
        self, *, prefetch: int = 1, lease: Span | None = None, worst_priority: int | None = None,
        auto_ack: bool = True, auto_extend: bool = True, consumer: str | None = None,
    ) -> "Consumer":  # fmt: skip
        async def make() -> AsyncConsumer:
            return self._heap.pop(
                prefetch=prefetch, lease=lease, worst_priority=worst_priority, auto_ack=auto_ack,
                auto_extend=auto_extend, on_lost="flag", consumer=consumer,
            )  # fmt: skip

        return Consumer(self._client, self._client.wait(make()), auto_ack)

    def peek(self, limit: int = 10, state: State = State.READY) -> list[Peeked]:
        return self._client.wait(self._heap.peek(limit, state))

    def stats(self) -> Stats:
        return self._client.wait(self._heap.stats())

    def purge(
        self, *, include_leased: bool = False, include_dlq: bool = False, force: bool = True, confirmation: str = ""
    ) -> int:
        return self._client.wait(
            self._heap.purge(
                include_leased=include_leased, include_dlq=include_dlq, force=force, confirmation=confirmation
            )
        )

    def bury(self, ids: Sequence[str], *, force: bool = False, reason: str = "") -> int:
        return self._client.wait(self._heap.bury(ids, force=force, reason=reason))


class BlockingKeys:
    """The keys of a client's cluster, blocking."""

    def __init__(self, client: Client, found: keys.Keys) -> None:
        self._client = client
        self._keys = found

    def create(
        self, name: str = "", *, role: KeyRole | None = None, principal: str = "", expires_in: Span | None = None
    ) -> CreatedKey:
        return self._client.wait(self._keys.create(name, role=role, principal=principal, expires_in=expires_in))

    def list(self) -> list[KeyInfo]:
        return self._client.wait(self._keys.list())

    def revoke(self, key_id: str, *, force: bool = True, confirmation: str = "") -> None:
        self._client.wait(self._keys.revoke(key_id, force=force, confirmation=confirmation))


class DeadLetterBox:
    """The dead letters of one heap, blocking."""

    def __init__(self, client: Client, box: heaps.DeadLetterBox) -> None:
        self._client = client
        self._box = box

    def list(self, limit: int = 100) -> "list[Peeked]":
        return self._client.wait(self._box.list(limit))

    def replay(
        self, ids: Sequence[str] | None = None, *, keep_time: bool = False, priority: int | None = None,
        per_second: int = 0, dry_run: bool = False,
    ) -> int:  # fmt: skip
        return self._client.wait(
            self._box.replay(ids, keep_time=keep_time, priority=priority, per_second=per_second, dry_run=dry_run)
        )

    def delete(self, ids: Sequence[str] | None = None, *, force: bool = True, confirmation: str = "") -> int:
        return self._client.wait(self._box.delete(ids, force=force, confirmation=confirmation))


class Consumer:
    """Messages of one heap, blocking. Close it, or leave its block."""

    def __init__(self, client: Client, consumer: AsyncConsumer, auto_ack: bool) -> None:
        self._client = client
        self._consumer = consumer
        self._auto_ack = auto_ack

    def __iter__(self) -> "Iterator[Job]":
        return self

    def __next__(self) -> "Job":
        job = self.next()
        if job is None:
            raise StopIteration
        return job

    def next(self, timeout: float | None = None) -> "Job | None":
        """The next job; None if none comes in time, or the consumer was closed."""

        async def wait() -> jobs.Job | None:
            try:
                async with asyncio.timeout(timeout):
                    return await self._consumer.next()
            except (TimeoutError, ClientClosed):
                return None

        found = self._client.wait(wait())
        return None if found is None else Job(self._client, found, self._auto_ack)

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.wait(self._consumer.close())


class Job:
    """A message that this worker holds, blocking. Leaving its block settles it as the asynchronous one does."""

    def __init__(self, client: Client, job: jobs.Job, auto_ack: bool) -> None:
        self._client = client
        self._job = job
        self._auto_ack = auto_ack
        self.id = job.id
        self.priority = job.priority
        self.attempts = job.attempts
        self.max_retries = job.max_retries
        self.enqueued_at = job.enqueued_at
        self.headers = job.headers
        self.partition = job.partition

    @property
    def payload(self) -> Payload:
        return self._job.payload

    @property
    def lost(self) -> bool:
        return self._job.is_lost

    @property
    def lease_left(self) -> timedelta:
        return self._job.lease_left

    def ack(self) -> None:
        self._client.wait(self._job.ack())

    def nack(self, *, delay: Span | None = None, error: str | None = None) -> None:
        self._client.wait(self._job.nack(delay=delay, error=error))

    def release(self, *, delay: Span | None = None) -> None:
        self._client.wait(self._job.release(delay=delay))

    def reject(self, *, error: str | None = None) -> None:
        self._client.wait(self._job.reject(error=error))

    def extend(self, by: Span) -> timedelta:
        return self._client.wait(self._job.extend(by))

    def __enter__(self) -> "Job":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._job.settled:
            return isinstance(error, Retry | Reject)
        if self.lost:
            raise LeaseLost("the lease has ended while the job ran", id=self.id) from error
        return self._client.wait(self._job.leave(error))
