"""What the clients of a heap write down.

A pop is invoked no later than the moment at which a broker could have granted
what it returns: for a stream, before its credit is given. A settlement and
the repeats that a client makes of it are one operation. `fail` stands only
for what surely did not happen: a nack that was repeated and then refused may
have been taken the first time, so it is `info`.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

LEASE_LOST: Final = "lease lost"
"""The error of a settlement that was refused because its lease is over."""

SettleKind: TypeAlias = Literal["ack", "nack", "release", "reject", "extend", "renew"]
ENDS: Final = frozenset({"ack", "nack", "release", "reject"})
"""After these the lease is over; the others prolong it."""


class Held(Struct, frozen=True, array_like=True, gc=False):
    """One message as a consumer got it; `key` is what makes it unlike every other."""

    id: str
    key: str
    crc: int
    token: str
    attempts: int
    priority: int


class Enqueue(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="enq"):
    heap: str
    key: str
    crc: int
    priority: int = 0
    delay_ms: int = 0
    batch: str = ""
    """What the messages of one batch have in common, in whichever heaps they are: taken whole or not at all."""


class Pop(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="pop"):
    heap: str
    credits: int = 1
    lease_ms: int = 30_000


class Settle(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="settle"):
    """End or prolong the lease of this token. `wait_ms`: until it comes back, or by how much it is prolonged."""

    heap: str
    token: str
    kind: SettleKind
    wait_ms: int = 0


class ListDead(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="dlq"):
    """All dead letters of the heap."""

    heap: str


class Replay(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="replay"):
    """Dead letters come back: these ids, or all."""

    heap: str
    ids: list[str] = []


class Enqueued(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="enqueued"):
    id: str
    duplicate: bool = False


class Popped(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="popped"):
    jobs: list[Held] = []


class Settled(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="settled"):
    dead: bool = False


class Dead(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="dead"):
    ids: list[str] = []


class HeapOpened(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="heap"):
    """A heap and what its run promises.

    `gives_back`: a broker or a client may give a message back that no history
    shows, without counting an attempt. Where nobody does, a message that
    comes with no attempt was never held before.
    `resumes`: clients begin a pop anew under their hood when a stream breaks,
    so that a pop with an answer may have been given something else before.
    """

    heap: str
    retries: int = 10
    least_first: bool = True
    gives_back: bool = True
    resumes: bool = False


class HeapDrained(Struct, frozen=True, kw_only=True, gc=False, tag_field="f", tag="drained"):
    """Nothing is ready, delayed or leased, and nobody enqueues any more: what was taken is acked or dead."""

    heap: str
