"""What a replica says of a commit before it is put, for a log whose commits say what they do."""

from collections.abc import Callable

from dray.log.delta.commits import CommitOperation, Operations
from dray.log.envelope import HEAD
from dray.machine.foresight import foresee
from dray.machine.machine import Machine
from dray.objects.paths import WalName


class Foretelling:
    """Asks the machine of a replica, wherever that is by then (M20)."""

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self._machine = machine

    @property
    def position(self) -> int:
        return self._machine().position

    def operations(self, entry: bytes) -> Operations:
        """One for each batch that gets offsets, if the entry is the next one."""
        machine = self._machine()
        found = foresee(machine, entry)
        if not found:
            return ()
        _, _, _, session, n, _, _, _ = HEAD.unpack_from(entry)
        return [
            CommitOperation(
                origin_id=session,
                origin_seq=n,
                stream=row.stream,
                offset_start=base,
                offset_end=base + row.records - 1,
                segment=WalName.of(
                    zone=append.zone, domain=machine.domain, created_ms=append.created_ms, wal_id=append.wal_id
                ).path(),
                position=row.position,
                size=row.size,
            )
            for append, row, base in found
        ]
