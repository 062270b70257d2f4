"""The names that clients see: ids of messages, tokens of leases.

    message id   ULID: begun ms 48 | domain 12 | number 32 | sequence 36
    lease token  base64url: version 1 B | slot 4 B | arrival 6 B | nonce 16 B

A token names the row and carries the proposer's random bytes; to find the
message needs no search.

Invariants
    HN1  What `parse` takes from a text is what `format` made it of, and every
         other text is refused.
"""

import base64
import binascii
from typing import Final, NamedTuple

from dray.heaps.errors import BadMessageId, BadToken

_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {letter: value for value, letter in enumerate(_LETTERS)}
_LENGTH: Final = 26
_SEQ_BITS: Final = 36
_NUMBER_BITS: Final = 32
_DOMAIN_BITS: Final = 12
_TOKEN_VERSION: Final = 1
_TOKEN_BYTES: Final = 27


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
    bits = identity.begun_ms
    bits = bits << _DOMAIN_BITS | identity.domain
    bits = bits << _NUMBER_BITS | identity.number
    bits = bits << _SEQ_BITS | identity.seq
    return "".join(_LETTERS[bits >> shift & 31] for shift in range(125, -5, -5))


def parse_id(text: str) -> MessageId:
    """Raises `BadMessageId` (HN1)."""
    if len(text) != _LENGTH or text[0] > "7":
        raise BadMessageId("a message id has 26 letters and digits", id=text[:40])
    bits = 0
    for letter in text:
        value = _VALUES.get(letter)
        if value is None:
            raise BadMessageId("a message id is written in Crockford's base 32", id=text[:40])
        bits = bits << 5 | value
    seq = bits & (1 << _SEQ_BITS) - 1
    number = bits >> _SEQ_BITS & (1 << _NUMBER_BITS) - 1
    domain = bits >> _SEQ_BITS + _NUMBER_BITS & (1 << _DOMAIN_BITS) - 1
    return MessageId(bits >> 80, domain, number, seq)


def format_token(token: LeaseToken) -> str:
    raw = bytes([_TOKEN_VERSION]) + token.slot.to_bytes(4, "big") + token.arrival.to_bytes(6, "big") + token.nonce
    return base64.urlsafe_b64encode(raw).decode()


def parse_token(text: str) -> LeaseToken:
    """Raises `BadToken`, which does not repeat the text (HN1)."""
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError) as broken:
        raise BadToken("a lease token is base64url") from broken
    if len(raw) != _TOKEN_BYTES or raw[0] != _TOKEN_VERSION:
        raise BadToken("a lease token has another form", length=len(raw))
    return LeaseToken(int.from_bytes(raw[1:5], "big"), int.from_bytes(raw[5:11], "big"), raw[11:])
