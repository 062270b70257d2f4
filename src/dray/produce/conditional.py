"""Appends under conditions: all batches or none, at the ends that were expected, and once for a transaction.

    batches of one domain -> one object -> one AppendIf -> applied -> answer

They do not share objects with what the lane stores: each is judged for
itself. What is known to fail is refused after a sync, and writes nothing.

Invariants
    CA1  Offsets are told only from the verdict of an applied AppendIf of an
         object whose put returned.
    CA2  "The end has moved" is said after a sync, or by the machine.
    CA3  An outcome that nobody knows is told as such; with a transaction the
         same call again gets the answer.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dray.errors import DrayError, Unavailable, Unknown
from dray.machine.append import FIRST_DUPLICATE, MALFORMED, Append, Appended, pack_rows
from dray.machine.append_if import AppendIf, AppendTorn, EndMoved
from dray.machine.command import NotActive
from dray.machine.names import StreamId, domain_of
from dray.machine.verdict import Refused, Verdict, Why
from dray.produce import telemetry
from dray.produce.batches import NewBatch, Stored
from dray.produce.errors import (
    BadBatch,
    ManyDomains,
    NotStored,
    StoredUnknown,
    StreamMissing,
    TransactionReused,
    VersionMoved,
)
from dray.produce.flush import because, refusal
from dray.produce.placing import Placed, Placer
from dray.produce.pressure import BATCH_OVERHEAD, Pressure
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.wal.codec import Batch

_SESSION_ENDED: Final = (Why.FOREIGN, Why.STATE)
_NOBODY_KNOWS: Final = (Why.EXISTS, Why.INTERNAL)


class Placement(NamedTuple):
    """Where a batch lies, and whether it has been lying there since an earlier call."""

    stored: Stored
    repeated: bool


class ConditionalAppends:
    """Appends of which one caller wants to know all or nothing."""

    def __init__(self, domains: Domains, pressure: Pressure, zone: str) -> None:
        self._domains = domains
        self._pressure = pressure
        self._zone = zone

    async def append(
        self, placer: Placer, batches: Sequence[NewBatch], expected: Mapping[StreamId, int], txn: bytes
    ) -> list[Placement]:
        """Store batches of different streams of one domain; where each lies, in order.

        Raises:
            VersionMoved: a stream ends elsewhere; nothing was stored.
            TransactionReused, ManyDomains, BadBatch, StreamMissing: nothing was stored, now or later.
            Unavailable: nothing was stored; try again.
            StoredUnknown: it may have been; the same call with the same transaction tells (CA3).
        """
        replica = self._domains.of(batches[0].stream)
        if len({domain_of(batch.stream) for batch in batches}) > 1:
            raise ManyDomains("the partitions lie in several domains: they cannot be written at once")
        await self._foresee(replica, expected, txn)
        held = sum(len(batch.data) + BATCH_OVERHEAD for batch in batches)
        self._pressure.take(held)
        try:
            for last in (False, True):
                placed = await self._place(placer, batches)
                answers = await self._commit(placer, replica, placed, batches, expected, txn, last=last)
                if answers is not None:
                    telemetry.CONDITIONAL.labels("stored").inc()
                    return answers
        finally:
            self._pressure.give_back(held)
        raise NotStored("the session ended twice before the commit")

    async def _foresee(self, replica: Replica, expected: Mapping[StreamId, int], txn: bytes) -> None:
        """Refuse what cannot be stored before anything is written (CA2)."""
        if txn or self._moved(replica, expected) is None:
            return
        await replica.sync()
        moved = self._moved(replica, expected)
        if moved is not None:
            telemetry.CONDITIONAL.labels("moved").inc()
            raise moved

    def _moved(self, replica: Replica, expected: Mapping[StreamId, int]) -> DrayError | None:
        for number, end in expected.items():
            stream = replica.machine.streams.find(number)
            if stream is None or stream.closed:
                return StreamMissing("the stream does not exist", stream=number)
            if stream.end != end:
                return VersionMoved(stream=number, version=stream.end)
        return None

    async def _place(self, placer: Placer, batches: Sequence[NewBatch]) -> Placed:
        try:
            return await placer.place(
                [
                    (batch.stream, [Batch(batch.data, batch.records, batch.min_timestamp_ms, batch.max_timestamp_ms)])
                    for batch in sorted(batches, key=lambda batch: batch.stream)
                ]
            )
        except DrayError as error:
            raise because(NotStored("the object could not be written"), error) from error

    async def _commit(
        self, placer: Placer, replica: Replica, placed: Placed, batches: Sequence[NewBatch],
        expected: Mapping[StreamId, int], txn: bytes, *, last: bool,
    ) -> list[Placement] | None:  # fmt: skip
        """The answers; None: the session of the object ended, and it can be written anew."""
        command = AppendIf(
            append=_append_of(placed, batches, self._zone), expected=tuple(expected.items()), txn=txn
        )  # fmt: skip
        try:
            (verdict,) = await replica.propose(command)
        except Unknown as error:
            telemetry.CONDITIONAL.labels("unknown").inc()
            raise because(StoredUnknown("nobody knows whether it was stored"), error) from error
        except Unavailable as error:
            placer.discard(placed)  # PR4: never sent
            raise because(NotStored("the object could not be committed"), error) from error
        except NotActive:
            placer.discard(placed)  # PR4
            raise
        if isinstance(verdict, Refused) and verdict.why in _SESSION_ENDED:
            placer.discard(placed)
            if not last:
                return None
        return self._judge(replica, verdict, batches, txn)

    def _judge(self, replica: Replica, verdict: Verdict, batches: Sequence[NewBatch], txn: bytes) -> list[Placement]:
        ordered = sorted(batches, key=lambda batch: batch.stream)
        streams = replica.machine.streams
        match verdict:
            case Appended(given=given):  # CA1
                found = {}
                for batch, code in zip(ordered, given, strict=True):
                    base = code if code >= 0 else FIRST_DUPLICATE - code
                    stream = streams.find(batch.stream)
                    found[batch.stream] = Placement(Stored(base, 0 if stream is None else stream.start), code < 0)
                return [found[batch.stream] for batch in batches]
            case EndMoved(stream=number, end=end):
                telemetry.CONDITIONAL.labels("moved").inc()
                if not streams.is_open(number):
                    raise StreamMissing("the stream does not exist", stream=number)
                raise VersionMoved(stream=number, version=end)
            case AppendTorn(row=row, code=code):
                telemetry.CONDITIONAL.labels("refused").inc()
                if code == MALFORMED and txn:
                    raise TransactionReused("the transaction was something else before", stream=ordered[row].stream)
                raise refusal(code, ordered[row])
            case Refused(why=why, reason=reason) if why in _NOBODY_KNOWS:
                raise StoredUnknown("the machine refused the object", why=why.name, reason=reason)
            case Refused(why=Why.MALFORMED, reason=reason):
                raise BadBatch("the machine takes no such append", reason=reason)
            case _:
                raise NotStored("the machine refused the object", verdict=verdict)


def _append_of(placed: Placed, batches: Sequence[NewBatch], zone: str) -> Append:
    ordered = sorted(batches, key=lambda batch: batch.stream)
    rows = [
        (
            batch.stream, batch.max_timestamp_ms, batch.min_timestamp_ms, -1, -1, batch.records, len(batch.data),
            position, -1,
        )
        for batch, (position,) in zip(ordered, placed.positions, strict=True)
    ]  # fmt: skip
    return Append(
        wal_id=placed.wal_id, size=placed.size, created_ms=placed.created_ms, zone=zone, packed=pack_rows(rows)
    )
