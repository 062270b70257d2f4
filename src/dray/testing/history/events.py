"""What a client writes down: the events of a history.

Every operation is two lines, an invoke before the client acts and one
completion after it knows more. What happens to a process rather than by it
(a rebalance, a fault, its end) is one line, a note. Only the client side
writes; times are nanoseconds of one monotonic clock on one host.

    invoke   about to act
    ok       it happened, and this is what came back
    fail     it surely did not happen
    info     nobody knows

An invoke without completion means the same as `info`. Several operations of
one process may be in flight.
"""

from typing import Final, NewType, TypeAlias

from msgspec import Struct

from dray.errors import Invalid
from dray.testing.history.heap_events import (
    Dead,
    Enqueue,
    Enqueued,
    HeapDrained,
    HeapOpened,
    ListDead,
    Pop,
    Popped,
    Replay,
    Settle,
    Settled,
)

OpId = NewType("OpId", int)
Process = NewType("Process", str)
Partition = NewType("Partition", str)
"""A topic name and a partition number, as `topic/3`. A slash is illegal in a topic name."""
ValueId = NewType("ValueId", str)
"""What makes one sent value unlike every other: `producer:seq`. Empty when a reader could not tell."""

UNREADABLE: Final = ValueId("")

Record: TypeAlias = tuple[int, ValueId, int]
"""One record as a consumer got it: offset, value id, CRC-32 of the value's bytes."""


def partition(topic: str, number: int) -> Partition:
    """Name one partition."""
    if "/" in topic or not topic:
        raise Invalid("a topic name is not empty and has no slash", topic=topic)
    return Partition(f"{topic}/{number}")


def topic_of(tp: Partition) -> str:
    return tp.rpartition("/")[0]


def number_of(tp: Partition) -> int:
    return int(tp.rpartition("/")[2])


class Send(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="send"):
    """Append one value. `producer` names the client instance, opened by `ProducerOpened`."""

    tp: Partition
    value: ValueId
    crc: int
    producer: str


class Poll(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="poll"):
    """Ask for records. `positions` are the next offsets as the client knows them."""

    positions: dict[Partition, int] = {}


class Assign(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="assign"):
    """Take these partitions, each from an offset (none: wherever the client begins).

    `drain` marks the last reading of a run: fresh clients, from the beginning,
    when all faults are over.
    """

    positions: dict[Partition, int | None]
    drain: bool = False


class Subscribe(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="subscribe"):
    group: str
    topics: list[str]


class Seek(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="seek"):
    tp: Partition
    offset: int


class Latest(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="latest"):
    """ListOffsets LATEST: one past the last record."""

    tp: Partition


class Earliest(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="earliest"):
    """ListOffsets EARLIEST: the first record that may still be read."""

    tp: Partition


class Commit(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="commit"):
    """Store a group's offset. `generation` is -1 outside of a group's generations."""

    group: str
    tp: Partition
    offset: int
    generation: int = -1
    member: str = ""


class Committed(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="committed"):
    """Read a group's offset; the answer is -1 where there is none."""

    group: str
    tp: Partition


class CreateTopic(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="create"):
    topic: str


class DeleteTopic(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="delete"):
    topic: str


Call: TypeAlias = (
    Send
    | Poll
    | Assign
    | Subscribe
    | Seek
    | Latest
    | Earliest
    | Commit
    | Committed
    | CreateTopic
    | DeleteTopic
    | Enqueue
    | Pop
    | Settle
    | ListDead
    | Replay
)


class Sent(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="sent"):
    """The append was acknowledged at this offset; none or negative if the answer had none."""

    offset: int | None


class Polled(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="polled"):
    """Records by partition, in the order they were handed out; `ends` are the high watermarks that came along."""

    records: dict[Partition, list[Record]] = {}
    ends: dict[Partition, int] = {}


class At(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="at"):
    """The answer of latest, earliest and committed."""

    offset: int


class Created(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="created"):
    topic_id: str = ""


class Done(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="done"):
    """It happened, and there is nothing more to say."""


Result: TypeAlias = Sent | Polled | At | Created | Done | Enqueued | Popped | Settled | Dead


class ProducerOpened(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="producer"):
    """A producer instance and what its settings promise. One that was never opened promises nothing.

    `idempotent`: no duplicates, and order within a partition even where an
    outcome is unknown. `ordered`: one request in flight, so acknowledged
    sends keep their order. `retries`: the client may send a value again by
    itself.
    """

    producer: str
    idempotent: bool = False
    ordered: bool = False
    retries: bool = True


class Rebalanced(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="rebalanced"):
    """The process learned its generation and owns exactly `owned`.

    `per_member`: generations are member epochs (KIP-848), which members reach
    one by one; otherwise they count for the whole group.
    """

    group: str
    generation: int
    member: str
    owned: list[Partition]
    per_member: bool = False


class Nemesis(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="nemesis"):
    """A fault begins or ends."""

    fault: str
    target: str
    start: bool


class Crashed(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="crashed"):
    """The client was dropped or closed; whatever it had in flight stays unknown."""


Note: TypeAlias = ProducerOpened | Rebalanced | Nemesis | Crashed | HeapOpened | HeapDrained


class Run(Struct, frozen=True, kw_only=True, tag_field="k", tag="run"):
    """The first line: what to repeat to get this run again."""

    seed: int
    version: str = ""
    config: dict[str, str | int | float | bool] = {}


class Invoke(
    Struct, frozen=True, kw_only=True, gc=False, tag_field="k", tag="invoke", rename={"t_ns": "t", "process": "p"}
):
    op: OpId
    t_ns: int
    process: Process
    call: Call


class Ok(Struct, frozen=True, kw_only=True, gc=False, tag_field="k", tag="ok", rename={"t_ns": "t"}):
    op: OpId
    t_ns: int
    result: Result


class Fail(Struct, frozen=True, kw_only=True, gc=False, tag_field="k", tag="fail", rename={"t_ns": "t"}):
    op: OpId
    t_ns: int
    error: str


class Info(Struct, frozen=True, kw_only=True, gc=False, tag_field="k", tag="info", rename={"t_ns": "t"}):
    op: OpId
    t_ns: int
    error: str


class Noted(
    Struct, frozen=True, kw_only=True, gc=False, tag_field="k", tag="note", rename={"t_ns": "t", "process": "p"}
):
    t_ns: int
    process: Process
    note: Note


Event: TypeAlias = Run | Invoke | Ok | Fail | Info | Noted
