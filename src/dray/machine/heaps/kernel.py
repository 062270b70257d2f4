"""The kernel of heaps: the C extension where it was built, else its twin, `dray.machine.heaps.pure`.

Invariants
    L13  The kernel and its twin do the same to the same rows, and give the
         same answers; neither reads or writes outside what it was given.
"""

from typing import TYPE_CHECKING

from dray.machine.heaps.pure import BY_DUE, BY_LEAST, BY_MOST

if TYPE_CHECKING:
    from dray.machine.heaps.pure import MessageOrder, ack_run, census, forget, lease_run, plain_run, write_run

    EXTENSION_LOADED: bool
else:
    try:
        from dray.machine.heaps import _kernel as chosen

        EXTENSION_LOADED = True
    except ImportError:
        from dray.machine.heaps import pure as chosen

        EXTENSION_LOADED = False
    MessageOrder = chosen.MessageOrder
    ack_run = chosen.ack_run
    census = chosen.census
    forget = chosen.forget
    lease_run = chosen.lease_run
    plain_run = chosen.plain_run
    write_run = chosen.write_run

__all__ = [
    "BY_DUE", "BY_LEAST", "BY_MOST", "EXTENSION_LOADED", "MessageOrder", "ack_run", "census", "forget", "lease_run",
    "plain_run", "write_run",
]  # fmt: skip
