"""What cannot be undone is asked for twice.

The first call is refused with a confirmation, which is good for a minute, for
the same operation on the same thing as it was then, and for the same caller.
Any broker checks it: it is signed with the cluster's secret and nothing is
remembered.

    base64url(expiry ms 8 | HMAC-SHA256 of expiry and what was asked, cut to 24)

Invariants
    CN1  A confirmation that is missing, of another operation, thing, revision
         or caller, or older than a minute changes nothing.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from dray.access.errors import ConfirmationNeeded

LIFE_MS: Final = 60_000
_EXPIRY_BYTES: Final = 8
_MAC_BYTES: Final = 24
TOKEN_CHARS: Final = (_EXPIRY_BYTES + _MAC_BYTES) * 4 // 3 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmable:
    """What is to be done, and by whom."""

    operation: str
    target: bytes
    """The id of the thing, never its name alone: another may have that name by then."""
    revision: int
    principal: str
    options: str = ""
    """What else the second call must ask for alike."""

    def packed(self) -> bytes:
        parts = (self.operation.encode(), self.target, self.principal.encode(), self.options.encode())
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts) + self.revision.to_bytes(8, "big")


def confirm(secret: bytes, wanted: Confirmable, given: str, now_ms: int, *, force: bool) -> None:
    """Return if this was confirmed; else `ConfirmationNeeded`, with one to send."""
    if not force or not is_valid(secret, wanted, given, now_ms):
        token = sign(secret, wanted, now_ms + LIFE_MS)
        raise ConfirmationNeeded(
            "this cannot be undone: ask again within a minute, with force and this confirmation", token,
            operation=wanted.operation,
        )  # fmt: skip


def sign(secret: bytes, wanted: Confirmable, expiry_ms: int) -> str:
    expiry = expiry_ms.to_bytes(_EXPIRY_BYTES, "big")
    mac = hmac.digest(secret, expiry + wanted.packed(), hashlib.sha256)[:_MAC_BYTES]
    return base64.urlsafe_b64encode(expiry + mac).rstrip(b"=").decode()


def is_valid(secret: bytes, wanted: Confirmable, given: str, now_ms: int) -> bool:
    if len(given) > TOKEN_CHARS or not given.isascii():
        return False
    try:
        raw = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
    except ValueError:
        return False
    expiry_ms = int.from_bytes(raw[:_EXPIRY_BYTES], "big")
    if len(raw) != _EXPIRY_BYTES + _MAC_BYTES or not now_ms < expiry_ms <= now_ms + LIFE_MS:
        return False
    return hmac.compare_digest(sign(secret, wanted, expiry_ms).encode(), given.encode())  # CN1
