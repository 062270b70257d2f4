"""Where checkpoints are kept, as a port, and how one becomes fit to be loaded.

A checkpoint is a pure function of the log: made by a child process from the
checkpoint before it and the entries since, never by stopping the live replica.
It is kept so that nobody loads it; only after a replica that did not make it
has confirmed it may it be loaded.

Adapters lie beside this module: `files`, `joined` (files, and copies of those
of the log's owner), `shared` (files, and copies of those in the object store),
`visiting` (those in the object store, and no files) and `memory`. One contract suite holds for every adapter:
`tests/replica/test_checkpoint_stores.py`.

Invariants
    CK1  Only a confirmed checkpoint is ever loaded or trimmed to.
    CK2  Two confirmed checkpoints are kept, and the log between them.
    CK3  A checkpoint that cannot be read costs nothing but time: the one
         before it is loaded, or the log from its beginning. It is kept aside,
         and nothing is trimmed on its account.
"""

from typing import Protocol

from dray.machine.checkpoint import Summary
from dray.machine.machine import Machine


class CheckpointStore(Protocol):
    """Checkpoints of one domain, by position."""

    async def write(self, position: int, *runs: bytes | bytearray) -> None:
        """Keep a checkpoint, durably, not yet to be loaded. A run of its bytes is one of its large parts."""
        ...

    async def examine(self, position: int) -> Summary:
        """Read a made checkpoint back and check it whole; its megabytes stay off the loop."""
        ...

    async def confirm(self, position: int) -> None:
        """From now on it may be loaded (CK1)."""
        ...

    async def confirmed(self) -> list[int]:
        """Positions of the checkpoints that may be loaded, ascending."""
        ...

    async def check(self, position: int) -> Summary:
        """Read a confirmed checkpoint and check it whole, off the loop."""
        ...

    async def load(self, position: int) -> Machine:
        """The machine of a confirmed checkpoint, built off the loop."""
        ...

    async def set_aside(self, position: int) -> None:
        """Keep a confirmed checkpoint that cannot be read where nobody loads it (CK3)."""
        ...

    async def discard(self, position: int) -> None:
        """Forget a made checkpoint; a missing one is fine."""
        ...

    async def remove(self, position: int) -> None:
        """Forget a checkpoint, made or confirmed; a missing one is fine."""
        ...

    async def made(self) -> list[int]:
        """Positions of the checkpoints that were made and not confirmed."""
        ...

    async def sweep(self) -> None:
        """Forget all that is half-written or not confirmed: for who comes to a store in which nobody is at work."""
        ...


class ReadableCheckpoints(CheckpointStore, Protocol):
    """Whose bytes can be had as they lie, to compare them."""

    async def read(self, position: int) -> bytes:
        """The bytes of a confirmed checkpoint."""
        ...
