"""The logs of a data directory that is ours: opened, begun if they are new, and served to others of this machine.

Invariants
    ND5  The catalog's log is begun when those of all its data domains are. So
         a first start that was cut short goes on at the next one, and a domain
         that is missing beside a catalog is damage (ND4).
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from dray.errors import Corrupt
from dray.log.files import FileLog
from dray.log.opening import open_log
from dray.machine.head import SUPPORTED, all_domains
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory, Identity, mark_born, was_born
from dray.node.metadata import Effects, MetadataOptions, Part, begin_log, log_options
from dray.replica.checkpoints import FileCheckpoints
from dray.replica.domains import CATALOG_DOMAIN
from dray.replica.fold import fold_to


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A data directory whose lock this process holds."""

    directory: DataDirectory
    owner: bool = True

    def session_name(self, identity: Identity, options: MetadataOptions) -> str:
        return options.name

    async def open(
        self, stack: AsyncExitStack, identity: Identity, effects: Effects, options: MetadataOptions
    ) -> Sequence[Part]:
        logs = await serve_logs(stack, self.directory, identity, effects, options)
        return [
            Part(
                domain=domain,
                log=log,
                checkpoints=FileCheckpoints(self.directory.checkpoints(domain), effects.disk, effects.aside),
                folder=effects.folder(
                    log=self.directory.served, domain=domain, directory=self.directory.checkpoints(domain)
                ),
                kept=log,
            )
            for domain, log in logs.items()
        ]


async def serve_logs(
    stack: AsyncExitStack, directory: DataDirectory, identity: Identity, effects: Effects, options: MetadataOptions
) -> dict[int, FileLog]:
    """Every log of the directory, open, and served on its socket until the stack ends."""
    logs = await open_logs(stack, directory, identity, effects, options)
    server = effects.server(logs, cluster_id=identity.cluster, max_entry_bytes=options.max_entry_bytes)
    stack.push_async_callback(server.close)
    await server.listen_unix(directory.socket)
    return logs


async def open_logs(
    stack: AsyncExitStack, directory: DataDirectory, identity: Identity, effects: Effects, options: MetadataOptions
) -> dict[int, FileLog]:
    """Every log of the directory, by its number; those of a new cluster are begun here."""
    logs: dict[int, FileLog] = {}

    async def opened(domain: int) -> FileLog:
        logs[domain] = log = await open_log(directory.logs, domain, effects.of_logs, log_options(options))
        stack.push_async_callback(log.close)
        if await log.tail() == 0 and was_born(effects.disk, directory.home(domain)):  # ND2
            raise Corrupt("the log is empty, but it was not: restore it from a backup", path=directory.log(domain))
        return log

    for domain in sorted({CATALOG_DOMAIN, *directory.domains(effects.disk)}):
        await opened(domain)
    if await logs[CATALOG_DOMAIN].tail() == 0:
        domains = await _born_with(logs, directory, options)
        for domain in reversed(all_domains(domains)):  # ND5: the catalog is the last
            log = logs[domain] if domain in logs else await opened(domain)
            if await log.tail() == 0:
                await begin_log(log, identity.cluster, domain, effects, domains, SUPPORTED)
            mark_born(effects.disk, directory.home(domain))
    for domain in logs:
        mark_born(effects.disk, directory.home(domain))
    return dict(sorted(logs.items()))


async def _born_with(logs: Mapping[int, FileLog], directory: DataDirectory, options: MetadataOptions) -> int:
    """How many data domains a new cluster gets: no fewer than a birth that was cut short began with."""
    tails = {domain: await log.tail() for domain, log in logs.items()}
    used = [domain for domain, tail in tails.items() if tail > 1]
    if used:  # ND5
        raise Corrupt(
            "the log of the catalog is missing, but another domain was used: mount its volume, or restore it from "
            "a backup",
            path=directory.log(CATALOG_DOMAIN), used=used[0],
        )  # fmt: skip
    begun = next((domain for domain, tail in tails.items() if tail == 1), None)
    if begun is None:
        return max(options.domains, *logs)
    machine = Machine()
    await fold_to(machine, logs[begun], tails[begun])
    return machine.head.domains
