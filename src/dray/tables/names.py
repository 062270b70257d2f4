"""Names of tables.

A table is called as its topic is, where the catalog takes that. Glue and Hive
make capitals small and refuse dots and dashes: there what is not a small
letter or a digit is escaped, `_` as `__` and any other sign as `_` and two hex
digits. What gets too long ends in a hash; the property `dray.topic` tells the
topic of every table.

Invariants
    TN1  Two topics never have one name for their tables, in capitals or not;
         a name that was not cut tells its topic.
"""

import hashlib
from typing import Final

LONGEST: Final = 255
_KEPT: Final = 230
_MARK: Final = "_z"
"""No escape: `z` is no hex digit."""


def escaped(topic: str) -> str:
    """The name of a topic's table for a catalog that takes small letters, digits and `_` alone (TN1)."""
    signs = [_sign(sign) for sign in topic]
    if sum(map(len, signs)) <= LONGEST:
        return "".join(signs)
    while sum(map(len, signs)) > _KEPT:
        signs.pop()
    return "".join(signs) + _MARK + hashlib.blake2b(topic.encode(), digest_size=8).hexdigest()


def _sign(sign: str) -> str:
    if sign.isascii() and (sign.islower() or sign.isdigit()):
        return sign
    return "__" if sign == "_" else f"_{ord(sign):02x}"
