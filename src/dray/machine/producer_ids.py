"""The ids that producers get, given out by the catalog.

Invariants
    P4  Producer ids are given once, one by one, in order, and those of a
        recovered log lie above all earlier ones.
"""

from dataclasses import dataclass
from typing import ClassVar

from dray.machine.command import Command, Packed
from dray.machine.head import Head
from dray.machine.names import PRODUCER_BITS, ProducerId, SessionId
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.verdict import Verdict, Why, refused


class AllocateProducerId(Packed, frozen=True, kw_only=True):
    """One producer id, unique over the cluster's life."""

    number = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerAllocated(Verdict):
    producer_id: ProducerId


class ProducerIds:
    """The counter of the catalog (P4)."""

    name: ClassVar[str] = "producer-ids"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (AllocateProducerId,)

    def __init__(self, head: Head) -> None:
        self.next = ProducerId(0)
        self._head = head

    def begin(self) -> None:
        """Ids of a generation lie above all earlier ones, even those lost with a log."""
        self.next = ProducerId(self._head.generation << PRODUCER_BITS)

    def apply(self, step: Step, command: Command) -> Verdict:
        if not isinstance(command, AllocateProducerId):
            return stray(command)
        if not self._head.is_catalog:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        verdict = self._allocate()
        step.given.append(self.next)
        return verdict

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Ids outlive sessions."""

    def _allocate(self) -> Verdict:
        if self.next >= (self._head.generation + 1) << PRODUCER_BITS:
            return refused(Why.LIMIT, "all producer ids of this generation are given")
        given = self.next
        self.next = ProducerId(given + 1)
        return ProducerAllocated(producer_id=given)

    def dump(self, out: Writer, version: int) -> None:
        out.values([self.next])

    def load(self, source: Reader, version: int) -> None:
        (following,) = source.ints(1)
        self.next = ProducerId(following)

    def show(self, prefix: str) -> Listing:
        """The next id is shown with the machine itself."""
        return iter(())
