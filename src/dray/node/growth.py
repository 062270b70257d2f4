"""An operator's step: more data domains for a cluster that nobody runs at the moment.

The logs of the new domains are begun first, and only then the catalog is told
(ND5), so a step that was cut short is simply made again: a log that the
catalog does not name yet holds nothing and is used by nobody. They begin with
the rules that are active, or the builds that still run could not open them.

That nobody runs is known by the lock of a directory; in a cluster of several
machines the catalog judges by its live sessions (M14), and a broker that began
to start before ends when it is registered (ND8).
"""

import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from dray.errors import Conflict, Corrupt, Invalid
from dray.log.opening import open_log
from dray.log.urls import LogUrl
from dray.machine.command import encode
from dray.machine.domains import AddDomains
from dray.machine.head import Head
from dray.machine.verdict import Refused
from dray.node.directory import DataDirectory, mark_born
from dray.node.metadata import Effects, MetadataOptions, begin_log, log_options
from dray.node.reaching import DirectoryOrCluster, reach
from dray.node.visiting import VisitedCluster
from dray.objects.port import Objects
from dray.replica.domains import CATALOG_DOMAIN


async def add_domains(place: DirectoryOrCluster, domains: int, effects: Effects) -> tuple[int, int]:
    """Let there be so many data domains; the number before and after.

    Raises:
        Conflict: a broker runs, or did not stop cleanly; nothing changed.
        NotActive: the active version has no such step; nothing changed.
        Invalid: there are more already.
    """
    async with reach(place, effects) as reached:
        if isinstance(place, DataDirectory) and reached.live:
            raise Conflict("a broker or a log server runs on the directory: stop all of them first")
        objects = reached.objects if isinstance(reached, VisitedCluster) else None
        url = place.logs if isinstance(place, DataDirectory) else place.log
        async with reached.following(CATALOG_DOMAIN, "operator", effects) as catalog:
            await catalog.sync()
            before = catalog.machine.head.domains
            if domains < before:
                raise Invalid("there are more domains already, and none is ever taken away", has=before, wanted=domains)
            if domains > before:
                head = catalog.machine.head
                encode(AddDomains(domains=domains), head.version)  # M10: refused before anything is begun
                new = range(1 if before == 1 else before + 1, domains + 1)
                await _begin(url, head, new, domains, effects, objects)
                if isinstance(place, DataDirectory):
                    for domain in new:
                        mark_born(effects.disk, place.home(domain))
            (verdict,) = await catalog.propose(AddDomains(domains=domains)) if domains > before else (None,)
            if isinstance(verdict, Refused):
                raise Conflict(
                    "nothing was changed: stop every broker with SIGTERM; one that was killed has to be started once "
                    "more first, or its session to expire",
                    reason=verdict.reason,
                )  # fmt: skip
            after = catalog.machine.head.domains
            await catalog.close_session()
    if isinstance(place, DataDirectory):
        place.remember_log(effects.disk)
    return before, after


async def _begin(
    url: LogUrl, catalog: Head, new: Sequence[int], domains: int, effects: Effects, objects: Objects | None
) -> None:
    """The logs of the domains that the catalog does not name yet."""
    async with AsyncExitStack() as stack:
        for domain in new:
            of_logs = replace(effects.of_logs, objects=objects)
            log = await open_log(url, domain, of_logs, log_options(MetadataOptions()))
            stack.push_async_callback(log.close)
            tail = await log.tail()
            if tail > 1:
                raise Corrupt("the log of a new domain was used: move it away", log=str(url), domain=domain)
            if tail == 0:
                await begin_log(log, uuid.UUID(bytes=catalog.cluster_id), domain, effects, domains, catalog.version)
