"""An operator's step: more data domains for a cluster that nobody runs at the moment.

The logs of the new domains are begun first, and only then the catalog is told
(ND5), so a step that was cut short is simply made again: a log that the
catalog does not name yet holds nothing and is used by nobody.
"""

from contextlib import AsyncExitStack

from dray.errors import Conflict, Corrupt, Invalid
from dray.log.opening import open_log
from dray.machine.domains import AddDomains
from dray.machine.head import Head
from dray.machine.verdict import Refused
from dray.node.directory import DataDirectory, Identity, mark_born
from dray.node.metadata import Effects, MetadataOptions, begin_log, log_options
from dray.node.reaching import reach
from dray.replica.domains import CATALOG_DOMAIN


async def add_domains(directory: DataDirectory, domains: int, effects: Effects) -> tuple[int, int]:
    """Let there be so many data domains; the number before and after.

    Raises:
        Conflict: a process runs on the directory, or a broker did not stop cleanly; nothing changed.
        Invalid: there are more already.
    """
    identity = directory.read_identity(effects.disk)
    async with reach(directory, effects) as reached:
        if reached.live:
            raise Conflict("a broker or a log server runs on the directory: stop all of them first")
        async with reached.following(CATALOG_DOMAIN, "operator", effects) as catalog:
            head = catalog.machine.head
            before = head.domains
            if domains < before:
                raise Invalid("there are more domains already, and none is ever taken away", has=before, wanted=domains)
            if domains > before:
                await _begin(directory, identity, head, domains, effects)
            (verdict,) = await catalog.propose(AddDomains(domains=domains)) if domains > before else (None,)
            if isinstance(verdict, Refused):
                raise Conflict(
                    "nothing was changed: start every broker once more and stop it with SIGTERM", reason=verdict.reason
                )
            after = catalog.machine.head.domains
            await catalog.close_session()
    directory.remember_log(effects.disk)
    return before, after


async def _begin(directory: DataDirectory, identity: Identity, head: Head, domains: int, effects: Effects) -> None:
    """The logs of the domains that the catalog does not name yet."""
    async with AsyncExitStack() as stack:
        for domain in range(1 if head.domains == 1 else head.domains + 1, domains + 1):
            log = await open_log(directory.logs, domain, effects.of_logs, log_options(MetadataOptions()))
            stack.push_async_callback(log.close)
            tail = await log.tail()
            if tail > 1:
                raise Corrupt("the log of a new domain was used: move it away", path=directory.log(domain))
            if tail == 0:
                await begin_log(log, identity, domain, effects, domains)
            mark_born(effects.disk, directory.home(domain))
