"""The kernel of streams: the C extension where it was built.

Invariants
    H8  The kernel takes only batches that every rule would take, and does to
        streams and producers what the rules do; without it every batch goes
        by the rules, to the same state. It reads and writes nothing outside
        what it was given.
"""

from typing import TYPE_CHECKING

from dray.machine.index import Index
from dray.machine.names import ObjectId, StreamId
from dray.machine.stream import Stream


def none_is_plain(
    packed: bytes, at: int, streams: dict[StreamId, Stream], owner: ObjectId, object_size: int, now_min: int,
    given: list[int], touched: list[StreamId], /,
) -> int:  # fmt: skip
    """What serves without the extension: no batch is taken before the rules have seen it."""
    return at


if TYPE_CHECKING:
    take_plain = none_is_plain
    EXTENSION_LOADED: bool
else:
    try:
        from dray.machine import _kernel as chosen

        chosen.learn(Stream, Index)
        take_plain = chosen.take_plain
        EXTENSION_LOADED = True
    except ImportError:
        take_plain = none_is_plain
        EXTENSION_LOADED = False

__all__ = ["EXTENSION_LOADED", "none_is_plain", "take_plain"]
