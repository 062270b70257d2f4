"""The names of state under the spec's keys: built, and taken apart again.

Every key begins with `/dray/v1`. Numbers have 20 digits, so keys sort like
the numbers in them; free text is percent-encoded (all but letters, digits,
`.`, `_` and `-`); ids made of bytes are lowercase hex. Keys are a view of the
machine and nothing is stored under them.

Invariants
    M9  `parse(build(kind, *parts))` is `(kind, parts)` for all parts, and
        `build` of what `parse` returns is the key.
"""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from dray.errors import Invalid

ROOT: Final = "/dray/v1"
WIDTH: Final = 20
Part: TypeAlias = int | str | bytes


class KeyKind(Enum):
    """Each kind of key, with the types of its parts: `#` a number, `$` text, `%` bytes."""

    MACHINE = "machine"
    BROKER = "cluster/%/brokers/#"
    TOPIC = "topics/$"
    PARTITION = "topics/$/partitions/#"
    STREAM = "streams/#"
    LOG_END = "streams/#/hwm"
    LOG_START = "streams/#/log-start"
    INDEX = "streams/#/offset-index/#/#"
    PRODUCER = "streams/#/producers/#"
    TASK = "streams/#/compaction/tasks/$"
    GROUP_TYPE = "groups/$/type"
    GROUP_STATE = "groups/$/state"
    GROUP_MEMBER = "groups/$/members/$"
    GROUP_ASSIGNMENT = "groups/$/assignment/$"
    GROUP_OFFSET = "groups/$/offsets/%/#"
    SESSION = "sessions/#"
    PIN = "sessions/#/pins/$"
    WAL_OBJECT = "wal/objects/#/%"
    WAL_GC = "wal/gc/#/%"
    CHECKPOINT = "checkpoints/#"
    ACL = "acls/$"


class Key(NamedTuple):
    """A key, taken apart."""

    kind: KeyKind
    parts: tuple[Part, ...]


_SHAPES: Final = {kind: tuple(kind.value.split("/")) for kind in KeyKind}


def build(kind: KeyKind, *parts: Part) -> str:
    """The key of a kind and its parts (M9)."""
    left = iter(parts)
    shape = _SHAPES[kind]
    if len(parts) != sum(piece in "#$%" for piece in shape):
        raise Invalid("key has another number of parts", kind=kind.name)
    return "/".join([ROOT, *(_encode(piece, next(left)) if piece in "#$%" else piece for piece in shape)])


def parse(key: str) -> Key:
    """The kind and the parts of a key (M9)."""
    if not key.startswith(ROOT + "/"):
        raise Invalid("key does not begin with the root", root=ROOT)
    pieces = key[len(ROOT) + 1 :].split("/")
    for kind, shape in _SHAPES.items():
        parts = _match(shape, pieces)
        if parts is not None:
            return Key(kind, parts)
    raise Invalid("no kind of key looks like this", key=key)


def text(value: str) -> str:
    """Free text as one piece of a key."""
    return quote(value, safe="").replace("~", "%7E")


def number(value: int) -> str:
    return f"{value:0{WIDTH}d}"


def _match(shape: tuple[str, ...], pieces: list[str]) -> tuple[Part, ...] | None:
    if len(shape) != len(pieces):
        return None
    parts: list[Part] = []
    for expected, piece in zip(shape, pieces, strict=True):
        if expected in "#$%":
            part = _decode(expected, piece)
            if part is None:
                return None
            parts.append(part)
        elif expected != piece:
            return None
    return tuple(parts)


def _encode(kind: str, part: Part) -> str:
    match kind, part:
        case "#", int() if 0 <= part < 10**WIDTH:
            return number(part)
        case "$", str():
            return text(part)
        case "%", bytes() if part:
            return part.hex()
        case _:
            raise Invalid("part does not fit its place in the key", kind=kind, part=part)


def _decode(kind: str, piece: str) -> Part | None:
    """Only the one spelling that `_encode` gives is a part."""
    part: Part
    try:
        if kind == "#":
            part = int(piece)
        elif kind == "$":
            part = unquote(piece, errors="strict")
        else:
            part = bytes.fromhex(piece)
        return part if _encode(kind, part) == piece else None
    except (ValueError, Invalid):
        return None
