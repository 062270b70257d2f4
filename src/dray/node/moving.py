"""A cluster moves: its state is taken from one place of the log and becomes the beginning of new logs elsewhere.

    a data directory, a log URL ─► ClusterExport ─► new logs: in a new directory, or of an engine

Records are not touched: they stay in the object store, or are copied with its
own tools. The new logs have ids of their own and the next generation, as after
a recovery (`dray.machine.recovery`), so nothing that the old ones gave (a
position, the name of an object) is given a second time.

Invariants
    MV2  A target that holds anything of a log is refused, and nothing is written to it.
    MV3  The catalog's log is begun when all others are: an import that was cut short is no cluster, and a broker that
         starts on it is refused (ND4, ND6).
    MV4  What was begun is read back and equals what the file held, but for the new log's id, generation and sessions.
"""

import uuid
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dray.errors import Conflict, Corrupt, Invalid, Unavailable
from dray.log.opening import open_log
from dray.log.port import BeginsBehind, Log, Position, Trimmed
from dray.log.urls import LogUrl
from dray.machine import checkpoint
from dray.machine.head import all_domains
from dray.machine.holds import Held, Hold
from dray.machine.machine import Machine
from dray.machine.names import LogId
from dray.machine.packing import Writer
from dray.machine.recovery import renew
from dray.node.clustered import current_log
from dray.node.directory import DataDirectory
from dray.node.exports import ClusterExport
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster, Reached, reach
from dray.node.recovery import build_home
from dray.node.store import ClusterStore
from dray.objects.cluster import bind, mark_begun
from dray.objects.port import Objects
from dray.replica.checkpoints import FileCheckpoints, PublishedCheckpoints
from dray.replica.domains import CATALOG_DOMAIN
from dray.replica.fold import fold_to

TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDomain:
    """One domain that was begun."""

    domain: int
    position: int
    generation: int


# -- export -----------------------------------------------------------------


async def export_cluster(place: DirectoryOrCluster, effects: Effects, hold_ms: int = 0) -> ClusterExport:
    """The state of a cluster, beside running brokers or with none.

    What it names stays in the store for `hold_ms`, under the pin `export-...`.
    """
    async with reach(place, effects) as reached:
        return await _exported(reached, effects, hold_ms)


async def _exported(states: Reached, effects: Effects, hold_ms: int) -> ClusterExport:
    """All domains, while the catalog says the same before and after: no topic is half there."""
    if hold_ms:
        pin = effects.entropy.random_bytes(6).hex()
        await _hold(states, Hold(pin=f"export-{pin}", length_ms=hold_ms, shared=False), effects)
    catalog = await states.machine(CATALOG_DOMAIN, effects)
    for _ in range(TRIES):
        machines = {CATALOG_DOMAIN: catalog}
        for domain in all_domains(catalog.head.domains)[1:]:
            machines[domain] = await states.machine(domain, effects)
        catalog, before = await states.machine(CATALOG_DOMAIN, effects), catalog
        if _named(before) == _named(catalog):
            return ClusterExport(
                cluster_id=str(uuid.UUID(bytes=before.head.cluster_id)),
                made_ms=effects.clock.wall_ms(),
                checkpoints={domain: checkpoint.dump(machine) for domain, machine in machines.items()},
            )
    raise Conflict("topics or heaps are made or deleted all the time: try again when that has ended")


async def _hold(states: Reached, hold: Hold, effects: Effects) -> None:
    """Before anything is read: whatever the states name is in the store for so long (X9)."""
    catalog = await states.machine(CATALOG_DOMAIN, effects)
    for domain in all_domains(catalog.head.domains):
        async with states.following(domain, "export", effects) as replica:
            (verdict,) = await replica.propose(hold)
            await replica.close_session()
        if not isinstance(verdict, Held):
            raise Conflict("the records could not be held: a broker of this version must have run", domain=domain)


def _named(catalog: Machine) -> bytes:
    """What the catalog says of topics and heaps."""
    out = Writer()
    for noun in (catalog.topics, catalog.heap_catalog):
        noun.dump(out, catalog.version)
    return out.body()


async def _state(log: Log, domain: int, objects: Objects, effects: Effects) -> Machine:
    tail = await log.tail()
    if tail == 0:
        raise Invalid("there is no cluster: the log is empty", domain=domain)
    log_id = await current_log(log, domain, objects)
    published = PublishedCheckpoints(objects, log_id=log_id, domain=domain, offload=effects.aside)
    for _ in range(TRIES):
        newest = max(await published.confirmed(), default=0)
        machine = checkpoint.load(await published.read(newest)) if newest else Machine()
        with suppress(Trimmed):  # a newer one was published while this one was read
            await fold_to(machine, log, tail)
            return machine
    raise Unavailable("the log is trimmed faster than it can be read", domain=domain)


# -- import -----------------------------------------------------------------


async def import_directory(export: ClusterExport, root: Path, effects: Effects) -> list[MovedDomain]:
    """Begin the cluster anew in a directory of its own.

    Raises:
        Conflict: it holds a log (MV2).
    """
    directory, disk = DataDirectory(root), effects.disk
    machines = _renewed(export, effects)
    disk.make_dir(directory.root)
    lock = effects.lock(directory.root)
    try:
        if disk.list(directory.meta):  # MV2
            raise Conflict("the directory holds a log already: choose a new one", path=directory.root)
        directory.claim(disk, effects.entropy, uuid.UUID(export.cluster_id))
        for domain in sorted(machines, reverse=True):  # MV3
            home = directory.home(domain)
            fresh = directory.meta / f"fresh-{home.name}"
            await build_home(disk, fresh, machines[domain])
            disk.rename(fresh, home)
            disk.sync_dir(directory.meta)
            own = FileCheckpoints(directory.checkpoints(domain), disk, effects.aside)
            _compare(machines[domain], await own.load(machines[domain].position))
        directory.remember_log(disk)
    finally:
        lock.release()
    return [_moved(domain, machine) for domain, machine in sorted(machines.items())]


async def import_engine(export: ClusterExport, url: LogUrl, store: ClusterStore, effects: Effects) -> list[MovedDomain]:
    """Begin the cluster anew in an engine, beside a store that is its own or nobody's yet.

    Raises:
        Conflict: a log is not empty (MV2).
        Invalid: the engine cannot, or the store is of another cluster.
    """
    machines = _renewed(export, effects)
    async with AsyncExitStack() as stack:
        objects = await store.opened(stack)
        of_logs = replace(effects.of_logs, objects=objects)
        logs: dict[int, BeginsBehind] = {}
        for domain in machines:
            log = await open_log(url, domain, of_logs)
            stack.push_async_callback(log.close)
            if not isinstance(log, BeginsBehind):
                raise Invalid(
                    "a cluster can move to a directory, a database, etcd, Oxia or a delta log, not there", log=str(url)
                )
            if await log.tail() != 0:  # MV2
                raise Conflict("the target holds a log already: choose an empty one", log=str(url), domain=domain)
            logs[domain] = log
        await bind(objects, export.cluster_id)  # O9
        for domain in sorted(machines, reverse=True):  # MV3
            machine = machines[domain]
            published = PublishedCheckpoints(objects, log_id=machine.log_id, domain=domain, offload=effects.aside)
            await published.publish(machine.position, checkpoint.dump(machine))
            await logs[domain].begin_behind(Position(machine.position))
        for domain, machine in machines.items():
            log = await open_log(url, domain, of_logs)
            stack.push_async_callback(log.close)
            _compare(machine, await _state(log, domain, objects, effects))
        await mark_begun(objects)
    return [_moved(domain, machine) for domain, machine in sorted(machines.items())]


def _renewed(export: ClusterExport, effects: Effects) -> dict[int, Machine]:
    """The state of every domain, as the beginning of a log of its own."""
    machines = export.machines()
    if CATALOG_DOMAIN not in machines or set(machines) != set(all_domains(machines[CATALOG_DOMAIN].head.domains)):
        raise Corrupt("the file lacks a domain: use another one", domains=sorted(machines))
    for machine in machines.values():
        renew(machine, LogId(effects.entropy.random_bytes(8)), effects.clock.wall_ms())
    return machines


def _compare(wanted: Machine, found: Machine) -> None:
    if checkpoint.fingerprint(wanted) != checkpoint.fingerprint(found):  # MV4
        raise Corrupt("what was written reads back as something else", domain=wanted.head.domain)


def _moved(domain: int, machine: Machine) -> MovedDomain:
    return MovedDomain(domain=domain, position=machine.position, generation=machine.head.generation)
