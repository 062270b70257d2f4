"""Dead objects: marked by the machine, deleted from the store, reported gone.

    dead --MarkDeleting--> deleting --delete--> --Gone--> (forgotten)

Whoever finds an object marked deletes it, so a crash between two steps costs
one deletion of what is gone already, which is success.

Invariants
    RT5  An object is deleted from the store only after this replica has
         applied the command that marked it.
    RT6  Gone is said only of objects whose deletion the store has confirmed.
"""

from collections.abc import Sequence
from typing import Final

from dray.machine.garbage import Gone, MarkDeleting, Marked
from dray.machine.names import ObjectId
from dray.objects.paths import BadName
from dray.objects.port import Objects
from dray.replica.replica import Replica
from dray.retention import telemetry
from dray.retention.deletion import delete_all
from dray.retention.settings import RetentionSettings, millis
from dray.telemetry import logger

BATCH: Final = 500
"""Objects that one command names."""


class Garbage:
    """Brings the dead objects of a domain out of the store."""

    def __init__(self, store: Objects, settings: RetentionSettings) -> None:
        self._store = store
        self._grace_ms = millis(settings.grace)
        self._in_flight = settings.deletes_in_flight

    def undone(self, replica: Replica) -> bool:
        """Is there anything to do?"""
        objects = replica.machine.objects
        return bool(objects.deleting(1)) or bool(self._due(replica))

    async def run(self, replica: Replica) -> None:
        """Delete what was marked before, then mark and delete what is due."""
        domain = str(replica.machine.domain)
        left_behind = replica.machine.objects.deleting(len(replica.machine.objects.dead))
        for at in range(0, len(left_behind), BATCH):
            await self._delete(replica, left_behind[at : at + BATCH])
        while batch := self._due(replica):
            match await replica.propose(MarkDeleting(objects=tuple(batch), grace_ms=self._grace_ms)):
                case [Marked(objects=marked)] if marked:
                    await self._delete(replica, marked)
                case _:
                    break  # time was paused, a pin came, or another process was faster
        telemetry.PENDING.labels(domain).set(len(replica.machine.objects.dead))
        telemetry.ONLY_IN_TABLE.labels(domain).set(sum(1 for _ in replica.machine.objects.only_in_table()))

    def _due(self, replica: Replica) -> list[ObjectId]:
        machine = replica.machine
        return [] if machine.timeline.paused else machine.objects.due(self._grace_ms, BATCH)

    async def _delete(self, replica: Replica, marked: Sequence[ObjectId]) -> None:
        """RT5: `marked` comes from an applied verdict or from the machine's own state."""
        await replica.sync()  # a log that was rolled back is noticed before anything is deleted for its sake (Q6)
        machine = replica.machine
        doomed = []
        for number in marked:
            death, found = machine.objects.dead.get(number), machine.objects.find(number)
            if death is None or not death.deleting or found is None:
                continue  # another process has reported it gone
            try:
                doomed.append((number, found.path(), found.size))
            except BadName as error:
                logger().error(telemetry.NOT_DELETED, object=number, count=1, first=str(error))
        results = await delete_all(self._store, [path for _, path, _ in doomed], in_flight=self._in_flight)
        gone = [(number, size) for (number, _, size), is_gone in zip(doomed, results, strict=True) if is_gone]
        if not gone:
            return
        telemetry.DELETED.labels("dead").inc(len(gone))
        telemetry.DELETED_BYTES.labels("dead").inc(sum(size for _, size in gone))
        await replica.propose(Gone(objects=tuple(number for number, _ in gone)))  # RT6
