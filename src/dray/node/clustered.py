"""Brokers of several machines: an engine keeps their logs, a store that all reach their records and checkpoints.

    drayd broker --log postgresql://dray@db/dray --set objects.url=s3://bucket/cluster
    drayd broker --log deltalog: --set objects.url=s3://bucket/cluster

No broker is special, and none has anything on its disk that another could not
make again. Which cluster it is, the store says (`cluster.json`); the first
broker of all begins the logs, and two that are first at once begin them
together: of two Genesis entries the machine takes the first.

Invariants
    ND6  Logs are begun only where the store never knew one: an engine that is
         empty beside a store that is not was wiped, or is another one.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace

from dray.errors import Corrupt, NotFound
from dray.log.opening import open_log
from dray.log.port import Log, Trimmed
from dray.log.urls import LogUrl
from dray.machine.checkpoint import summary
from dray.machine.head import SUPPORTED, all_domains
from dray.machine.machine import Machine
from dray.machine.names import LogId
from dray.node.directory import DataDirectory, Identity, WrongDirectory
from dray.node.metadata import Effects, MetadataOptions, Part, begin_log, log_options
from dray.objects.cluster import was_begun
from dray.objects.port import Objects
from dray.offload import InlineOffload
from dray.replica.checkpoints import FileCheckpoints, PublishedCheckpoints, SharedCheckpoints, published_logs
from dray.replica.domains import CATALOG_DOMAIN
from dray.replica.fold import fold_to, state_at


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
        of_logs = replace(effects.of_logs, objects=self.objects)  # a delta log may be kept in them
        log = await open_log(self.url, domain, of_logs, log_options(options))
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
                    await begin_log(one, identity.cluster, domain, effects, options.domains, SUPPORTED)

    async def _part(self, log: Log, domain: int, effects: Effects) -> Part:
        effects.disk.make_dir(self.directory.home(domain))
        ours, disk, aside = self.directory.checkpoints(domain), effects.disk, effects.aside
        log_id = await current_log(log, domain, self.objects)
        await _check_copies(FileCheckpoints(ours, disk, aside), log_id, self.directory)
        published = PublishedCheckpoints(self.objects, log_id=log_id, domain=domain, offload=aside)
        return Part(
            domain=domain,
            log=log,
            checkpoints=SharedCheckpoints(ours, published, disk, aside),
            folder=effects.folder(log=self.url, domain=domain, directory=ours),
            shared=True,
        )


async def current_log(log: Log, domain: int, objects: Objects) -> LogId:
    """Which log it is: its first entry says so, and when that is gone the checkpoints of the store.

    There may be some of logs that this one has replaced; it has the newest generation.
    """
    machine = Machine()
    try:
        await fold_to(machine, log, 1)
    except Trimmed:
        logs = await published_logs(objects, domain)
        if len(logs) == 1:
            return LogId(logs.pop())
        generations = {found: await _generation(objects, found, domain) for found in logs}
    else:
        return machine.log_id
    newest = [found for found, generation in generations.items() if generation == max(generations.values())]
    if len(newest) != 1:
        raise NotFound(
            "the log was trimmed, and the store does not say by its checkpoints which one it is: set objects.url to "
            "what the cluster uses",
            domain=domain, found=len(newest),
        )  # fmt: skip
    return LogId(newest[0])


async def _generation(objects: Objects, log_id: bytes, domain: int) -> int:
    published = PublishedCheckpoints(objects, log_id=log_id, domain=domain, offload=InlineOffload())
    for position in reversed(await published.confirmed()):
        with suppress(NotFound, Corrupt):
            return summary(await published.read(position)).generation
    return -1


async def _check_copies(ours: FileCheckpoints, log_id: LogId, directory: DataDirectory) -> None:
    """What lies here is of this log, or of one that it has replaced."""
    for position in await ours.confirmed():
        with suppress(NotFound, Corrupt):
            if (await ours.check(position)).log_id != log_id:
                raise WrongDirectory(
                    "the directory has checkpoints of a log that was replaced: start with a new one, nothing in it is "
                    "needed",
                    path=directory.root,
                )
