"""When a message comes back: the dice of its backoff, the same in every replica.

Delays name moments, so they are in machine time; leases last, so they are in
running time (`dray.machine.heaps.leases`).
"""

from typing import Final

from dray.machine.heaps.config import HeapConfig

WAKE_LIMIT: Final = 512
"""Messages that a lease wakes before it grants."""
_MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15


def backoff_ms(config: HeapConfig, arrival: int, attempts: int) -> int:
    """How long a message waits that failed for the `attempts + 1`th time: anything up to an exponential bound."""
    most = min(config.backoff_cap_ms, config.backoff_base_ms << min(attempts, 40))
    return _mix(arrival * _ODD + attempts & _MASK) * (most + 1) >> 64 if config.jitter else most


def _mix(bits: int) -> int:
    """A fixed mixing of 64 bits."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _MASK
    return bits ^ bits >> 31
