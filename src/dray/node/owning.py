"""The logs of a data directory that is ours: opened, begun if they are new, and served to others of this machine."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from dray.errors import Corrupt
from dray.log.files import FileLog
from dray.log.opening import open_log
from dray.node.directory import DataDirectory, Identity, mark_born, was_born
from dray.node.metadata import Effects, MetadataOptions, Part, begin_log, log_options
from dray.replica.checkpoints import FileCheckpoints


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
    """Every log of the directory; the first one is begun here."""
    logs = {}
    for domain in directory.domains(effects.disk) or [0]:
        log = await open_log(directory.logs, domain, effects.of_logs, log_options(options))
        stack.push_async_callback(log.close)
        home = directory.home(domain)
        if await log.tail() == 0:
            if was_born(effects.disk, home):  # ND2
                raise Corrupt("the log is empty, but it was not: restore it from a backup", path=directory.log(domain))
            await begin_log(log, identity, domain, effects)
        mark_born(effects.disk, home)
        logs[domain] = log
    return logs
