"""One consuming process of a workload: a client, its positions, and what is written down about them."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from dray.errors import Corrupt
from dray.ids import Entropy
from dray.testing.history.clients import ClientFailed, Consumer, Fetched, Kit
from dray.testing.history.events import (
    UNREADABLE,
    Assign,
    At,
    Call,
    Commit,
    Committed,
    Crashed,
    Done,
    OpId,
    Partition,
    Poll,
    Polled,
    Process,
    Record,
    Result,
)
from dray.testing.history.journal import Recorder
from dray.testing.history.outcomes import Outcome
from dray.testing.history.values import checksum, decode_value

_T = TypeVar("_T")
_POLL_S: Final = 0.2
_TAKE_SHARE: Final = 0.6
"""How many of the partitions a consumer takes."""
_BACK_SHARE: Final = 0.3
"""How often it begins again at 0."""


def choose(entropy: Entropy, choices: Sequence[_T]) -> _T:
    return choices[min(int(entropy.uniform(0, len(choices))), len(choices) - 1)]


class Attempts:
    """Records one operation around each act of a client (HC1)."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    async def run(self, process: Process, call: Call, act: Callable[[], Awaitable[Result]]) -> Result | None:
        """None if it did not surely happen."""
        op = self.recorder.invoke(process, call)
        try:
            result = await act()
        except ClientFailed as problem:
            self.settle(op, problem)
            return None
        self.recorder.ok(op, result)
        return result

    def settle(self, op: OpId, problem: ClientFailed) -> None:
        if problem.outcome is Outcome.FAIL:
            self.recorder.fail(op, problem.cause)
        else:
            self.recorder.info(op, problem.cause)


class Reader:
    """Polls, moves about, commits what it read. Nobody else uses its group."""

    def __init__(
        self,
        *,
        process: Process,
        group: str,
        partitions: Sequence[Partition],
        kit: Kit,
        attempts: Attempts,
        entropy: Entropy,
    ) -> None:
        self._process = process
        self._group = group
        self._partitions = partitions
        self._kit = kit
        self._attempts = attempts
        self._entropy = entropy
        self._consumer: Consumer | None = None
        self._assigned: list[Partition] = []
        self.positions: dict[Partition, int] = {}

    async def open(self, positions: Mapping[Partition, int] | None = None, *, drain: bool = False) -> bool:
        """Take a fresh client, and these partitions or some.

        Raises:
            ClientFailed: there is no client; nothing was written down.
        """
        self._consumer = await self._kit.consumer(self._group)
        if positions is None:
            await self.move()
        else:
            await self._assign(positions, drain=drain)
        return True

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(ClientFailed):  # it is dropped either way
                await consumer.close()
        self._attempts.recorder.note(self._process, Crashed())

    async def move(self) -> None:
        """Take some partitions, from where this process was or from the beginning."""
        chosen = [tp for tp in self._partitions if self._entropy.uniform(0, 1) < _TAKE_SHARE]
        back = self._entropy.uniform(0, 1) < _BACK_SHARE
        await self._assign({tp: 0 if back else self.positions.get(tp, 0) for tp in chosen or self._partitions[:1]})

    async def poll(self) -> bool:
        """False if the client had no answer."""
        consumer = self._client()

        async def poll() -> Result:
            return _polled(await consumer.poll(_POLL_S))

        told = {tp: self.positions[tp] for tp in self._assigned}
        result = await self._attempts.run(self._process, Poll(positions=told), poll)
        if not isinstance(result, Polled):
            return False
        for tp, records in result.records.items():
            self.positions[tp] = records[-1][0] + 1
        return True

    async def commit(self) -> None:
        """Store one position and read it back."""
        consumer = self._client()
        tp = choose(self._entropy, self._assigned)
        offset = self.positions[tp]

        async def commit() -> Result:
            await consumer.commit(tp, offset)
            return Done()

        async def committed() -> Result:
            return At(offset=await consumer.committed(tp))

        await self._attempts.run(self._process, Commit(group=self._group, tp=tp, offset=offset), commit)
        await self._attempts.run(self._process, Committed(group=self._group, tp=tp), committed)

    async def _assign(self, positions: Mapping[Partition, int], *, drain: bool = False) -> None:
        consumer = self._client()

        async def assign() -> Result:
            await consumer.assign(positions)
            return Done()

        told: dict[Partition, int | None] = dict(positions)
        self.positions.update(positions)
        self._assigned = list(positions)
        await self._attempts.run(self._process, Assign(positions=told, drain=drain), assign)

    def _client(self) -> Consumer:
        assert self._consumer is not None, "a reader is opened before it is used"
        return self._consumer


def _polled(fetched: Fetched) -> Polled:
    records = {tp: [_record(offset, raw) for offset, raw in listed] for tp, listed in fetched.records.items() if listed}
    return Polled(records=records, ends=dict(fetched.ends))


def _record(offset: int, raw: bytes) -> Record:
    value = UNREADABLE
    with contextlib.suppress(Corrupt):
        value = decode_value(raw).id
    return offset, value, checksum(raw)
