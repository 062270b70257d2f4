"""What a run promises beside its history: bounds, and what may legally happen in it."""

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a check. The defaults are those of a run with real clients and real faults."""

    stale_read_ns: int = 10 * SECOND_NS
    """A consumer may wait this long, without faults, for a record that exists."""

    progress_ns: int = 30 * SECOND_NS
    """A process that tries may be without a success this long, without faults."""

    retention: bool = True
    """Records may leave the log at its start, and the run asks EARLIEST of every partition at its end.
    False: nothing may leave; a start that moves hides loss, and excuses nothing."""

    stuck_ns: int = 5 * SECOND_NS
    """A message that is ready and a consumer that waits for one may be apart this long, without faults."""

    late_ack_ns: int = 5 * SECOND_NS
    """A token may be taken so long after its lease by the client's clock, without faults: running time may lag."""

    clock_skew_ns: int = SECOND_NS // 2
    """So far the wall clocks of brokers are apart that nobody moved; delays run in their time."""

    unknown_pop_ns: int = 10 * SECOND_NS
    """A pop that was given up may still get its lease this long, and hold it for its length."""

    undecided_ns: int = 30 * SECOND_NS
    """The messages of a batch over several heaps may become ready so far apart, if its broker died."""

    min_ok_share: float = 0.5
    """Below this share of successes a history proves nothing."""
