"""The names that clients see: ids of messages, tokens of leases.

    message id   ULID: begun ms 48 | domain 12 | number 32 | sequence 36
    lease token  base64url: version 1 B | slot 4 B | arrival 6 B | nonce 16 B

A token names the row and carries the proposer's random bytes; to find the
message needs no search.

Invariants
    HN1  What `parse` takes from a text is what `format` made it of, and every
         other text is refused.
"""

import binascii
from typing import Final, NamedTuple

from dray.heaps.errors import BadMessageId, BadToken

_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CROCKFORD: Final = frozenset(_LETTERS)
_PAIRS: Final = tuple(first + second for first in _LETTERS for second in _LETTERS)
_TO_DIGITS: Final = str.maketrans(_LETTERS, "0123456789ABCDEFGHIJKLMNOPQRSTUV")
"""To the digits that `int` knows."""
_LENGTH: Final = 26
_SEQ_BITS: Final = 36
_NUMBER_BITS: Final = 32
_DOMAIN_BITS: Final = 12
_TOKEN_VERSION: Final = 1
_TOKEN_BYTES: Final = 27
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE: Final = bytes.maketrans(b"-_+/", b"+/--")
"""The letters that they stand for become none: of two texts one would not be what `format` made."""


class MessageId(NamedTuple):
    begun_ms: int
    domain: int
    number: int
    seq: int


class LeaseToken(NamedTuple):
    slot: int
    arrival: int
    nonce: bytes


def format_id(identity: MessageId) -> str:
    """As a ULID (HN1)."""
    begun_ms, domain, number, seq = identity
    bits = ((begun_ms << _DOMAIN_BITS | domain) << _NUMBER_BITS | number) << _SEQ_BITS | seq
    high, low = bits >> 60, bits & (1 << 60) - 1  # small numbers are quicker than large ones
    p = _PAIRS
    return (
        p[high >> 60] + p[high >> 50 & 1023] + p[high >> 40 & 1023] + p[high >> 30 & 1023] + p[high >> 20 & 1023]
        + p[high >> 10 & 1023] + p[high & 1023] + p[low >> 50] + p[low >> 40 & 1023] + p[low >> 30 & 1023]
        + p[low >> 20 & 1023] + p[low >> 10 & 1023] + p[low & 1023]
    )  # fmt: skip


def parse_id(text: str) -> MessageId:
    """Raises `BadMessageId` (HN1)."""
    if len(text) != _LENGTH or text[0] > "7":
        raise BadMessageId("a message id has 26 letters and digits", id=text[:40])
    if not _CROCKFORD.issuperset(text):
        raise BadMessageId("a message id is written in Crockford's base 32", id=text[:40])
    bits = int(text.translate(_TO_DIGITS), 32)
    seq = bits & (1 << _SEQ_BITS) - 1
    number = bits >> _SEQ_BITS & (1 << _NUMBER_BITS) - 1
    domain = bits >> _SEQ_BITS + _NUMBER_BITS & (1 << _DOMAIN_BITS) - 1
    return MessageId(bits >> 80, domain, number, seq)


def format_token(token: LeaseToken) -> str:
    slot, arrival, nonce = token
    raw = (_TOKEN_VERSION << 80 | slot << 48 | arrival).to_bytes(11, "big") + nonce
    return binascii.b2a_base64(raw, newline=False).translate(_URL_SAFE).decode("ascii")


def parse_token(text: str) -> LeaseToken:
    """Raises `BadToken`, which does not repeat the text (HN1)."""
    try:
        raw = binascii.a2b_base64(text.encode("ascii").translate(_FROM_URL_SAFE), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError, ValueError) as broken:
        raise BadToken("a lease token is base64url") from broken
    if len(raw) != _TOKEN_BYTES or raw[0] != _TOKEN_VERSION:
        raise BadToken("a lease token has another form", length=len(raw))
    return LeaseToken(int.from_bytes(raw[1:5], "big"), int.from_bytes(raw[5:11], "big"), raw[11:])
