"""The access of a broker: its keys, its audit file, and the threads that check keys."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from dray.access.audit import Audit, AuditFile
from dray.access.key_service import KeyService
from dray.access.service import AccessService
from dray.access.settings import AccessSettings
from dray.node.addresses import HostPort
from dray.node.audit_files import BROKER_PLACE
from dray.node.metadata import Effects
from dray.node.plane import Plane
from dray.offload import ThreadOffload
from dray.servers.http.app import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who is let in here, and the keys that they are let in by."""

    access: AccessService
    keys: KeyService


async def run_admission(
    stack: AsyncExitStack,
    settings: AccessSettings,
    plane: Plane,
    effects: Effects,
    root: Path | None,
    listeners: Iterable[HostPort],
) -> Admission:
    """Let people in until the stack ends. `root` is the data directory, if there is one."""
    threads = ThreadOffload(settings.argon2_parallel, "dray-keys")
    stack.callback(threads.close)
    catalog = plane.domains.catalog
    file = None if root is None else AuditFile(root / BROKER_PLACE, effects.disk)
    access = AccessService(
        catalog=catalog,
        clock=plane.clock,
        entropy=plane.entropy,
        offload=threads,
        audit=Audit(file, effects.aside),
        settings=settings,
        loopback=all(at.is_loopback for at in listeners),
    )
    await stack.enter_async_context(access.running())
    stack.push_async_callback(plane.watch.stop, plane.watch.start("access", access.run))
    return Admission(access=access, keys=KeyService(catalog=catalog, entropy=plane.entropy, offload=threads))


def audit_probe(access: AccessService) -> Probe:
    """Is what administrators did written down?"""

    async def probe() -> None:
        access.audit.check()

    return probe
