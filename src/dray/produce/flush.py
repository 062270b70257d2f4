"""Some batches that share an object: their order, their rows, and what each is told."""

import asyncio
from typing import TypeAlias, TypeVar

from dray.errors import DrayError
from dray.machine.append import CLOSED, FENCED, GAP, UNKNOWN_STREAM, Append, batch_verdict, pack_rows
from dray.produce import telemetry
from dray.produce.batches import NewBatch
from dray.produce.errors import BadBatch, OutOfOrder, ProducerFenced, StreamMissing
from dray.produce.placing import Placed
from dray.produce.receiver import Receiver
from dray.telemetry import logger
from dray.wal.codec import Fields

Waiting: TypeAlias = tuple[NewBatch, Receiver]
AnyError = TypeVar("AnyError", bound=DrayError)


def _stream_of(entry: Waiting) -> int:
    return entry[0][0]


class Flush:
    """A flush on its way: cut, written, proposed, over."""

    __slots__ = ("begun_ns", "over", "placed", "proposed", "replaced", "size", "waiting")

    def __init__(self, waiting: list[Waiting], size: int, begun_ns: int) -> None:
        # Chunks lie by stream; the sort is stable, so batches of a stream keep their order (PR2).
        self.waiting: list[Waiting | None] = [*sorted(waiting, key=_stream_of)]
        """In the order of the object; None where a batch was answered before the commit."""
        self.size = size
        """What the batches that are not answered hold (PR5)."""
        self.begun_ns = begun_ns
        self.placed: Placed | None = None
        self.proposed = False
        self.replaced = False
        self.over = False

    @property
    def settled(self) -> bool:
        """Is there nothing to wait for before it is its turn?"""
        return self.over or self.placed is not None

    def left(self) -> list[Waiting]:
        """The batches that are not answered."""
        return [entry for entry in self.waiting if entry is not None]

    def lay_out(self) -> list[tuple[int, list[Fields]]]:
        """The chunks of a new object of what is left. From here on `waiting` is parallel to its positions."""
        left = self.left()
        self.waiting = [*left]
        chunks: list[tuple[int, list[Fields]]] = []
        last = -1
        for batch, _ in left:
            if batch[0] != last:
                last = batch[0]
                chunks.append((last, []))
            chunks[-1][1].append(batch[1:5])
        return chunks


def placed_of(flush: Flush) -> Placed:
    """The object of a flush that has one."""
    assert flush.placed is not None, "the flush is not written"
    return flush.placed


def key_of(entry: Waiting) -> tuple[int, int]:
    """Whose order a batch belongs to: its stream and producer; all that have no id count as one."""
    batch = entry[0]
    return batch.stream, batch.producer_id


def append_of(flush: Flush, zone: str) -> Append:
    """The command that gives the batches of a written flush their offsets; what was answered is left out."""
    placed = placed_of(flush)
    positions = (position for chunk in placed.positions for position in chunk)
    rows = []
    for entry, position in zip(flush.waiting, positions, strict=True):
        if entry is not None:
            stream, data, records, least, greatest, producer, epoch, sequence = entry[0]
            rows.append((stream, greatest, least, producer, sequence, records, len(data), position, epoch))
    return Append(
        wal_id=placed.wal_id, size=placed.size, created_ms=placed.created_ms, zone=zone, packed=pack_rows(rows)
    )


def refusal(code: int, batch: NewBatch) -> DrayError:
    """What the machine's code means to the caller of a batch."""
    match code:
        case _ if code == GAP:
            return OutOfOrder(
                "the sequence does not follow", stream=batch.stream, producer=batch.producer_id,
                sequence=batch.base_sequence,
            )  # fmt: skip
        case _ if code == FENCED:
            return ProducerFenced("a newer epoch has written", stream=batch.stream, producer=batch.producer_id)
        case _ if code in (CLOSED, UNKNOWN_STREAM):
            return StreamMissing("the stream does not exist", stream=batch.stream)
        case _:
            return BadBatch("the machine takes no such batch", stream=batch.stream, why=batch_verdict(code))


def fail(answer: Receiver, error: DrayError) -> None:
    """Answer with an error. Whoever waits gets it; nobody has to."""
    if not answer.done():
        answer.set_exception(error)
        if isinstance(answer, asyncio.Future):
            answer.exception()


def because(error: AnyError, cause: Exception) -> AnyError:
    """The error, with its cause chained."""
    error.__cause__ = cause
    return error


def report(error: Exception) -> None:
    """Tell of an error that no port may raise."""
    if not isinstance(error, DrayError):
        logger().error(telemetry.BROKEN, error=repr(error))
