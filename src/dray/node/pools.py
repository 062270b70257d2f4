"""The threads of a broker, apart by what waits for them.

A disk call can take any time. Consumers that read old records from a slow
disk wait for each other; a producer waits for its own put and the log's own
sync, and for nothing else.

Invariants
    OF2  Neither reads of objects, nor checkpoints, nor deletions take a thread
         that a put or an append to the log needs.
"""

from typing import Final

from dray.clock import Clock
from dray.offload import CLOSE_S, ThreadOffload

LOG_THREADS: Final = 2
PUT_THREADS: Final = 8
READ_THREADS: Final = 8
UPKEEP_THREADS: Final = 4
UNPACK_THREADS: Final = 2
"""Few, so that bombs hold at most this many scratch buffers."""


class Pools:
    """One pool for each kind of work (OF2). Threads are made when they are needed."""

    def __init__(self) -> None:
        self.log: Final = ThreadOffload(LOG_THREADS, "dray-log")
        self.puts: Final = ThreadOffload(PUT_THREADS, "dray-put")
        self.reads: Final = ThreadOffload(READ_THREADS, "dray-read")
        self.upkeep: Final = ThreadOffload(UPKEEP_THREADS, "dray-upkeep")
        """Checkpoints, history of the log, lists, deletions, and questions about the disk."""
        self.unpack: Final = ThreadOffload(UNPACK_THREADS, "dray-unpack")

    def close(self, clock: Clock) -> list[str]:
        """Wait for what runs, all pools together for no longer than one alone; the names of those that hang."""
        pools = {
            "log": self.log, "puts": self.puts, "reads": self.reads, "upkeep": self.upkeep, "unpack": self.unpack,
        }  # fmt: skip
        end_ns = clock.boot_ns() + int(CLOSE_S * 1e9)
        return [name for name, pool in pools.items() if not pool.close(max(0.0, (end_ns - clock.boot_ns()) / 1e9))]
