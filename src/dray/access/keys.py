"""A key as its holder has it: `dray_<id 8>_<secret 43>_<crc 6>`, letters and digits.

The id names the key to everybody, the secret is 256 random bits, and the crc
tells a key that was cut or mistyped from a wrong one, before anything is
asked. A text that is not exactly that long is no key, so nothing of it is
looked at.

Invariants
    AC7  No secret is in a log line, a metric, a view, an error, a repr or the
         audit file: what holds one shows itself as `***`.
"""

import re
import string
import zlib
from dataclasses import dataclass
from typing import Final

from dray.access.errors import Unauthenticated
from dray.ids import Entropy
from dray.machine.access import HIDDEN, KEY_ID_CHARS

PREFIX: Final = "dray_"
SECRET_CHARS: Final = 43
CRC_CHARS: Final = 6
KEY_CHARS: Final = len(PREFIX) + KEY_ID_CHARS + 1 + SECRET_CHARS + 1 + CRC_CHARS
_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_FORM: Final = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{KEY_ID_CHARS}}})_[0-9A-Za-z]{{{SECRET_CHARS}}}_([0-9A-Za-z]{{{CRC_CHARS}}})"
)


@dataclass(frozen=True, slots=True, repr=False)
class KeyText:
    """A whole key, secret and all."""

    id: str
    _text: str

    def reveal(self) -> str:
        """The text itself: for whoever it was made for, and for hashing."""
        return self._text

    def __repr__(self) -> str:
        return f"{PREFIX}{self.id}_{HIDDEN}"  # AC7

    __str__ = __repr__


def new_key(entropy: Entropy) -> KeyText:
    """A key that nobody had before."""
    number = _base62(int.from_bytes(entropy.random_bytes(16), "big") % 62**KEY_ID_CHARS, KEY_ID_CHARS)
    secret = _base62(int.from_bytes(entropy.random_bytes(32), "big"), SECRET_CHARS)
    head = f"{PREFIX}{number}_{secret}"
    return KeyText(number, f"{head}_{_crc(head)}")


def parse_key(text: str) -> KeyText:
    """A key that is whole; whether it is valid is another question."""
    found = _FORM.fullmatch(text) if len(text) == KEY_CHARS else None
    if found is None or _crc(text[: -CRC_CHARS - 1]) != found[2]:
        raise Unauthenticated("this is no key of Dray, or it was cut or mistyped")
    return KeyText(found[1], text)


def _crc(head: str) -> str:
    return _base62(zlib.crc32(head.encode()), CRC_CHARS)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
