"""How many data domains there are, and how groups find theirs: the catalog's to say.

A cluster is born with some (Genesis) and may be given more, never fewer. What
is there does not move: streams say where they live (T1), and the buckets of
groups stay with the domains that there were at the birth. New partitions go to
all of them.

Invariants
    M13  The data domains of a cluster never become fewer, and a group keeps
         the domain that it had.
    M14  Domains are added while no broker and no compactor is live: each has
         opened those that it knew of.
"""

from typing import Annotated, ClassVar

from msgspec import Meta

from dray.machine.command import Command, Packed
from dray.machine.head import Head
from dray.machine.names import SessionId
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import SessionKind, Sessions
from dray.machine.step import Step
from dray.machine.verdict import DONE, Verdict, Why, refused


class AddDomains(Packed, frozen=True, kw_only=True):
    """From here on the data domains are those up to this number. Their logs have been begun."""

    number = 120
    since = 2

    domains: Annotated[int, Meta(ge=2, le=0xFFFF)]


class DataDomains:
    """The growth of a cluster, kept in domain 0; the numbers stand in the head."""

    name: ClassVar[str] = "domains"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (AddDomains,)

    def __init__(self, head: Head, sessions: Sessions) -> None:
        self._head = head
        self._sessions = sessions

    def apply(self, step: Step, command: Command) -> Verdict:
        if not isinstance(command, AddDomains):
            return stray(command)
        head = self._head
        if not head.is_catalog:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        if command.domains <= head.domains:
            same = command.domains == head.domains
            return DONE if same else refused(Why.STATE, "there are more already, and none is ever taken away")  # M13
        if any(session.kind is not SessionKind.TOOL for session in self._sessions.live.values()):
            return refused(Why.LIVE, "a broker or compactor is live")  # M14
        head.grown_from = head.grown_from or head.domains  # M13: the first number counts for groups
        head.domains = command.domains
        step.catalog_changed = True
        return DONE

    def session_ended(self, step: Step, session: SessionId) -> None:
        """Domains belong to no session."""

    def dump(self, out: Writer, version: int) -> None:
        out.values([self._head.grown_from])

    def load(self, source: Reader, version: int) -> None:
        (self._head.grown_from,) = source.ints(1)

    def show(self, prefix: str) -> Listing:
        """The head tells."""
        return iter(())
