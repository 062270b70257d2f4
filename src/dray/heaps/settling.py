"""How deliveries end or go on: many tokens in one call, each told for itself."""

import msgspec

from dray.errors import DrayError
from dray.heaps.errors import BadMessage, LeaseLost, MessageGone
from dray.heaps.ids import LeaseToken
from dray.machine.heaps import answers
from dray.machine.heaps.answers import Settled
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.packets import MAX_NOTE_BYTES, Settlement, SettleRow


class SettleOne(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer says of one delivery."""

    kind: Settlement
    token: LeaseToken
    duration_ms: int | None = None
    """Of EXTEND and RENEW how long; of NACK and RELEASE after how long it comes back. None: the backoff, or at once."""
    note: str = ""
    """Why it failed."""


class SettleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. That it had been taken before is success (L4)."""

    done: bool = True
    dead: bool = False
    """The message is a dead letter now, or dropped where there are none."""
    lease_ms: int | None = None
    """What is left of a lease that was prolonged."""
    again_ms: int | None = None
    """After how long a message that was not acked comes back."""
    error: DrayError | None = None
    """`LeaseLost` or `MessageGone`, where it was not done."""


def check_settlement(one: SettleOne) -> SettleRow:
    if one.duration_ms is not None and not 0 <= one.duration_ms < 1 << 62:
        raise BadMessage("a duration is not negative, and not that long")
    if one.kind in (Settlement.EXTEND, Settlement.RENEW) and not one.duration_ms:
        raise BadMessage("how long is a lease to be prolonged?")
    absent = -1 if one.kind is Settlement.NACK else 0
    argument = absent if one.duration_ms is None else one.duration_ms
    return SettleRow(one.kind, one.token.slot, one.token.arrival, one.token.nonce, argument)


def cut_note(note: str) -> str:
    return note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore")


def outcome(heap: Heap, kind: Settlement, settled: Settled, index: int) -> SettleOutcome:
    code, left_ms = settled.codes[index], settled.left_ms.get(index)
    match code:
        case answers.LOST:
            return SettleOutcome(
                done=False, error=LeaseLost("the token does not hold the message any more", heap=heap.name)
            )
        case answers.GONE:
            return SettleOutcome(done=False, error=MessageGone("there is no such message", heap=heap.name))
        case _ if kind in (Settlement.EXTEND, Settlement.RENEW):
            return SettleOutcome(lease_ms=left_ms)
        case _:
            return SettleOutcome(dead=code == answers.DIED, again_ms=left_ms)
