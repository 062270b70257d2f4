"""How a process serves heaps: where bodies lie, how much goes into one entry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapPolicy:
    """Numbers that a process is given."""

    inline_max_bytes: int = 16 << 10
    """A body up to this size travels in the log. Larger: fewer objects, a longer log."""
    inline_turn_bytes: int = 256 << 10
    """Bodies of one entry."""
    inline_most_bytes: int = 8 << 20
    """Bodies in the memory of a domain; above it they are written to objects, new ones and the oldest."""
    spill_after_ms: int = 60_000
    """Bodies in memory that are older are written to objects."""
    spill_bytes: int = 4 << 20
    """Bodies of one object that is spilled to."""
    rewrite_every_ms: int = 600_000
    """How often it is looked whether objects are mostly dead."""
    rewrite_slack_bytes: int = 64 << 20
    """Objects may hold twice the bodies that live, and so much more."""
    cache_bytes: int = 64 << 20
    """Of objects that bodies were read from."""
    turn_rows: int = 2_000
    """Messages and settlements of one entry."""
    waiting_rows: int = 20_000
    """Messages and settlements that may wait for an entry; more are refused."""
    doubt_ms: int = 10_000
    """A batch that is not decided for so long is given up by whoever sees it."""
    tick_ms: int = 1_000
    overdue_ms: int = 2_000
    """Whoever is not the oldest broker does what is due so much later."""
