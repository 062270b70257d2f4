"""Values as JSON has them: 64-bit numbers as strings, durations in seconds, bytes in base64.

proto3's JSON: numbers of 64 bits are written as strings and taken as both,
durations are "1.5s", times are RFC 3339. Names of fields are those of the
proto. A field that nobody knows is refused: one that is misspelt must not be
left out in silence.
"""

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from dray.servers.http.errors import BadRequest

U32: Final = (1 << 32) - 1
MAX_SIGNED: Final = (1 << 63) - 1

Offset: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_SIGNED)]
Int64: TypeAlias = Annotated[str, Meta(pattern=r"^-?[0-9]{1,20}$", description="a number of 64 bits")]
"""As it is told."""
PartitionNumber: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Duration: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{1,10}(\.[0-9]{1,9})?s?$", description="seconds, as `1.5s`")]
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
NameText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=249)]
GroupText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_024)]
ShortText: TypeAlias = Annotated[str, Meta(max_length=1_024)]

_DURATION: Final = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,9})?)s?")


class In(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What clients send."""


class Out(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What clients are told; what is not set is left out."""


def seconds(text: str, *, most_s: float, name: str) -> float:
    """A duration within a bound."""
    found = _DURATION.fullmatch(text)
    given = float(found[1]) if found else math.inf
    if given > most_s:
        raise BadRequest(f"{name} is from 0s to {most_s:g}s", given=text[:40])
    return given


def millis(text: str, *, most_s: float, name: str) -> int:
    return round(seconds(text, most_s=most_s, name=name) * 1_000)


def duration(ms: float) -> str:
    """Milliseconds as a duration."""
    return f"{ms / 1_000:.3f}".rstrip("0").rstrip(".") + "s"


def time_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC).replace(microsecond=ms % 1_000 * 1_000)


def ms_of(time: datetime) -> int:
    return int((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000)
