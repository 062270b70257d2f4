"""File descriptors: as many as the system gives, and some of them kept back for the store and the log.

A client takes a descriptor by connecting, and who has none left can neither
store nor read. So connections are counted against what the process may open,
less what it needs itself.

Invariants
    ND20  Connections, accepted and about to be, leave the store and the log
          at least OWN_LEAST descriptors.
"""

import resource
from dataclasses import dataclass, replace
from typing import Final

from dray.servers.kafka.settings import Limits

OPEN_AT_START: Final = 32
OWN_LEAST: Final = 64
_MOST: Final = 1 << 20
"""Where the system knows no limit."""
_LARGEST_BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What of the descriptors is for Kafka clients."""

    limits: Limits
    backlog: int
    """Connections that may be accepted before the first of them is counted."""


def raise_limit() -> None:
    """Open as many files as the system lets us; for a process of our own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS names a limit that it does not give; what there is has to do
            return


def open_limit() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def share(limits: Limits, most_open: int) -> Share:
    """The limits of the Kafka server, so that its connections leave enough for all else (ND20)."""
    own = max(OWN_LEAST, min(most_open // 8, _LARGEST_BACKLOG))
    backlog = max(1, min(own // 2, _LARGEST_BACKLOG))
    left = most_open - OPEN_AT_START - own - backlog
    return Share(limits=replace(limits, max_connections=max(1, min(limits.max_connections, left))), backlog=backlog)
