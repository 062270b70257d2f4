"""Brokers of several machines: an engine keeps their logs, a store that all reach their records and checkpoints.

    drayd broker --log postgresql://dray@db/dray --set objects.url=s3://bucket/cluster

No broker is special, and none has anything on its disk that another could not
make again. Which cluster it is, the store says (`cluster.json`); the first
broker of all begins the logs, and two that are first at once begin them
together: of two Genesis entries the machine takes the first.

Invariants
    ND6  Logs are begun only where the store never knew one: an engine that is
         empty beside a store that is not was wiped, or is another one.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from dray.errors import Corrupt, NotFound
from dray.log.opening import open_log
from dray.log.port import Log, Trimmed
from dray.log.urls import LogUrl
from dray.machine.head import all_domains
from dray.machine.names import LogId
from dray.node.directory import DataDirectory, Identity
from dray.node.joining import log_id_of
from dray.node.metadata import Effects, MetadataOptions, Part, begin_log, log_options
from dray.objects.cluster import was_begun
from dray.objects.port import Objects
from dray.replica.checkpoints import FileCheckpoints, PublishedCheckpoints, SharedCheckpoints, published_logs
from dray.replica.domains import CATALOG_DOMAIN
from dray.replica.fold import state_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """Logs that no process of ours keeps; the directory is our own."""

    url: LogUrl
    directory: DataDirectory
    objects: Objects
    owner: bool = False

    def session_name(self, identity: Identity, options: MetadataOptions) -> str:
        return f"broker-{identity.instance_id}"

    async def open(
        self, stack: AsyncExitStack, identity: Identity, effects: Effects, options: MetadataOptions
    ) -> Sequence[Part]:
        catalog = await self._log(stack, CATALOG_DOMAIN, effects, options)
        if await catalog.tail() == 0:
            await self._begin(catalog, identity, effects, options)
        first = await self._part(catalog, CATALOG_DOMAIN, effects)
        head = (await state_at(await catalog.tail(), catalog, first.checkpoints)).head
        parts = [first]
        for domain in sorted({*head.data_domains} - {CATALOG_DOMAIN}):
            log = await self._log(stack, domain, effects, options)
            if await log.tail() == 0:  # ND4
                raise Corrupt("the log of a domain is gone, but the catalog names it: restore it", domain=domain)
            parts.append(await self._part(log, domain, effects))
        return parts

    async def _log(self, stack: AsyncExitStack, domain: int, effects: Effects, options: MetadataOptions) -> Log:
        log = await open_log(self.url, domain, effects.of_logs, log_options(options))
        stack.push_async_callback(log.close)
        return log

    async def _begin(self, catalog: Log, identity: Identity, effects: Effects, options: MetadataOptions) -> None:
        if await was_begun(self.objects):  # ND6
            raise Corrupt(
                "the log is empty, but the store holds the records of a cluster: set log.url to what its other brokers "
                "use, or restore the log from a backup",
                log=str(self.url), cluster=identity.cluster_id,
            )  # fmt: skip
        for domain in reversed(all_domains(options.domains)):  # ND5: the catalog is the last
            async with AsyncExitStack() as stack:
                one = catalog if domain == CATALOG_DOMAIN else await self._log(stack, domain, effects, options)
                if await one.tail() == 0:
                    await begin_log(one, identity, domain, effects, options.domains)

    async def _part(self, log: Log, domain: int, effects: Effects) -> Part:
        effects.disk.make_dir(self.directory.home(domain))
        ours, disk, aside = self.directory.checkpoints(domain), effects.disk, effects.aside
        log_id = await self._log_id(log, domain, FileCheckpoints(ours, disk, aside))
        published = PublishedCheckpoints(self.objects, log_id=log_id, domain=domain, offload=aside)
        return Part(
            domain=domain,
            log=log,
            checkpoints=SharedCheckpoints(ours, published, disk, aside),
            folder=effects.folder(log=self.url, domain=domain, directory=ours),
            shared=True,
        )

    async def _log_id(self, log: Log, domain: int, ours: FileCheckpoints) -> LogId:
        try:
            return await log_id_of(log, ours)
        except Trimmed:
            found = await published_logs(self.objects, domain)
        if len(found) != 1:
            raise NotFound(
                "the log was trimmed, and the store has no checkpoint of it: set objects.url to what the cluster uses",
                domain=domain, found=len(found),
            )  # fmt: skip
        return LogId(found.pop())
