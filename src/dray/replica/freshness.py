"""One sync of each domain for each request.

A negative answer needs a sync that began when its request was here. One
sync says that for everything that the request asks of the domain.

Invariants
    RP20  A domain is synced at most once for a request, and what that sync
          raised is raised to whoever of the request needs it.
"""

from dray.errors import DrayError
from dray.replica.replica import Replica


class Freshness:
    """The domains that were asked for their tail since one request came."""

    __slots__ = ("_synced",)

    def __init__(self) -> None:
        self._synced: dict[Replica, DrayError | None] = {}

    async def of(self, replica: Replica) -> None:
        """Return once a domain is as new as it was when the request came."""
        if replica not in self._synced:
            try:
                await replica.sync()
            except DrayError as error:
                self._synced[replica] = error
            else:
                self._synced[replica] = None
        failure = self._synced[replica]
        if failure is not None:
            raise failure  # RP20
