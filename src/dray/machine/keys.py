"""The names of state under the spec's keys: built, and taken apart again.

Every key begins with `/dray/v1`. Numbers have 20 digits, so keys sort like
the numbers in them; free text is percent-encoded (all but letters, digits,
`.`, `_` and `-`); ids made of bytes are lowercase hex. Keys are a view of the
machine and nothing is stored under them. Each noun says which shapes it has.

Invariants
    M9  `parse` of what `build` gives is the parts, for all parts, and `build`
        of what `parse` returns is the key.
"""

from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from dray.errors import Invalid

ROOT: Final = "/dray/v1"
WIDTH: Final = 20
Part: TypeAlias = int | str | bytes


class Shape:
    """One kind of key, by the types of its parts: `#` a number, `$` text, `%` bytes."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._pieces = tuple(pattern.split("/"))

    def build(self, *parts: Part) -> str:
        """The key of these parts (M9)."""
        left = iter(parts)
        if len(parts) != sum(piece in "#$%" for piece in self._pieces):
            raise Invalid("key has another number of parts", pattern=self.pattern)
        return "/".join([ROOT, *(_encode(piece, next(left)) if piece in "#$%" else piece for piece in self._pieces)])

    def parse(self, key: str) -> tuple[Part, ...] | None:
        """The parts of a key of this kind; none if it is of another (M9)."""
        if not key.startswith(ROOT + "/"):
            return None
        return _match(self._pieces, key[len(ROOT) + 1 :].split("/"))

    def __repr__(self) -> str:
        return f"Shape({self.pattern!r})"


def overlap(key: str, prefix: str) -> bool:
    """May something at or under a key begin with the prefix?"""
    return key.startswith(prefix) or prefix.startswith(key)


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
