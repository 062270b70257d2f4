"""What may be wrong with a machine, a directory or a store, found before it hurts.

Every check says what it saw and, where something is wrong, what to do. Nothing
is changed but for a probe that is written beside the data and removed again.
"""

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from dray.clock import SystemClock
from dray.config import Config
from dray.disk import DirectoryInUse, DirectoryLock, LocalDisk
from dray.errors import DrayError, NotFound
from dray.ids import SystemEntropy
from dray.log.reader import Damage
from dray.log.settings import LogSettings
from dray.log.urls import EtcdLogs, LocalLogs, OxiaLogs, ServedLogs, SharedLogs
from dray.machine import kernel as streams_kernel
from dray.machine.heaps import kernel as heaps_kernel
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory
from dray.node.inspection import current_machine, inspect
from dray.node.metadata import Effects
from dray.node.rules import activation_command, active_version, newest_version
from dray.node.settings import BrokerSettings
from dray.node.space import full_disk, room_at
from dray.node.store import store_of
from dray.node.visiting import NoCluster, cluster_place, open_beside, visit
from dray.objects.cluster import bound_to, was_begun
from dray.objects.opening import local_root
from dray.objects.port import Objects
from dray.objects.probe import probe, store_date
from dray.objects.settings import ObjectsSettings
from dray.offload import Offload, ThreadOffload
from dray.records import kernel
from dray.replica.domains import CATALOG_DOMAIN
from dray.retention.present import is_ahead
from dray.servers.kafka.settings import KafkaSettings

FILES_BESIDES: Final = 256
"""Files that are no connections: the log, the store, this and that."""
SLOW_SYNC_MS: Final = 50
FREE_WANTED: Final = 1 << 30
STORE_SKEW_MS: Final = 300_000
LOOK_S: Final = 60.0
"""What a look at a log may take."""


class State(Enum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check saw."""

    check: str
    state: State
    saw: str
    next: str = ""


_NO_LOG: Final = Finding(check="log", state=State.OK, saw="there is no log yet")


async def examine(config: Config) -> AsyncIterator[Finding]:
    """Run every check, one after the other."""
    log = config.get(LogSettings).place
    elsewhere = log.root if isinstance(log, LocalLogs) else None
    directory = DataDirectory(config.get(BrokerSettings).data.absolute(), elsewhere)
    checks: tuple[tuple[str, Callable[[], Awaitable[Finding]]], ...] = (
        ("kernel", _kernel),
        ("limits", lambda: _limits(config)),
        ("directory", lambda: _directory(directory)),
        ("disk", lambda: _disk(config, directory)),
        ("store", lambda: _store(config, directory)),
        ("clock", lambda: _clock(config, directory)),
    )
    for name, check in checks:
        try:
            yield await check()
        except DrayError as error:
            yield _failed(name, error)
    try:
        for found in await _of_logs(config, directory):
            yield found
    except DrayError as error:
        yield _failed("log", error)
    except TimeoutError:
        yield Finding(
            check="log", state=State.FAIL, saw=f"it could not be read to its end within {LOOK_S:.0f} s",
            next="see that what keeps it answers; a log of many entries without a checkpoint takes that long too",
        )  # fmt: skip


def _failed(check: str, error: DrayError) -> Finding:
    advice = error.advice or "mend what this line names, then run `drayd doctor` again"
    return Finding(check=check, state=State.FAIL, saw=str(error), next=advice)


async def _kernel() -> Finding:
    kernels = {
        "records": kernel.EXTENSION_LOADED,
        "streams": streams_kernel.EXTENSION_LOADED,
        "heaps": heaps_kernel.EXTENSION_LOADED,
    }
    missing = ", ".join(name for name, loaded in kernels.items() if not loaded)
    if not missing:
        return Finding(check="kernel", state=State.OK, saw=f"the C kernels for {', '.join(kernels)} are loaded")
    return Finding(
        check="kernel",
        state=State.WARN,
        saw=f"no C kernel for {missing}; Python serves instead, at a fraction of its speed",
        next="install a C compiler and Python's headers, and install dray again",
    )


async def _limits(config: Config) -> Finding:
    """Whether as many connections can be open as the settings allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = config.get(KafkaSettings).max_connections
    saw = f"{files} open files allowed, for {connections} connections and what else is open"
    if files >= connections + FILES_BESIDES:
        return Finding(check="limits", state=State.OK, saw=saw)
    return Finding(
        check="limits",
        state=State.WARN,
        saw=saw,
        next=f"raise it: ulimit -n {connections + FILES_BESIDES}, or lower kafka.max_connections",
    )


async def _directory(directory: DataDirectory) -> Finding:
    disk = LocalDisk()
    try:
        identity = directory.read_identity(disk)
    except NotFound:
        return Finding(check="directory", state=State.OK, saw=f"{directory.root} is not a data directory yet")
    try:
        DirectoryLock(directory.root).release()
    except DirectoryInUse as error:
        return Finding(check="directory", state=State.OK, saw=f"cluster {identity.cluster_id}; in use: {error}")
    return Finding(check="directory", state=State.OK, saw=f"cluster {identity.cluster_id}; nobody uses it")


async def _disk(config: Config, directory: DataDirectory) -> Finding:
    """Room, and what a sync costs here."""
    reserve = int(config.get(BrokerSettings).disk_reserve)
    records = local_root(config.get(ObjectsSettings).url or str(directory.objects))
    places = {"data": directory.root, "log": directory.meta} | ({} if records is None else {"records": records})
    rooms = [room_at(what, path) for what, path in places.items()]
    for room in rooms:
        if room.is_full(reserve):
            full = full_disk(room, reserve)
            return Finding(check="disk", state=State.FAIL, saw=str(full), next=full.advice)
    home, free = rooms[0].path, min(room.free_bytes for room in rooms)
    milliseconds = sorted(_sync_ms(LocalDisk(), home / f".dray-doctor-{number}") for number in range(5))[2]
    saw = f"{free / 2**30:.1f} GiB free; a synced write takes {milliseconds:.1f} ms"
    if free < FREE_WANTED:
        return Finding(check="disk", state=State.WARN, saw=saw, next="free some space: a full disk refuses writes")
    if milliseconds > SLOW_SYNC_MS:
        return Finding(
            check="disk", state=State.WARN, saw=saw, next="every acknowledgement waits for this: use a faster disk"
        )
    return Finding(check="disk", state=State.OK, saw=saw)


def _sync_ms(disk: LocalDisk, path: Path) -> float:
    clock = SystemClock()
    file = disk.create(path)
    try:
        before = clock.boot_ns()
        file.write([bytes(4096)])
        file.sync()
        return (clock.boot_ns() - before) / 1e6
    finally:
        file.close()
        disk.remove(path)


async def _store(config: Config, directory: DataDirectory) -> Finding:
    """Whether the store takes a name only once, which everything stands on."""
    begun = directory.knows_log(LocalDisk()) and config.get(ObjectsSettings).url != "memory:"
    lost = Finding(
        check="store",
        state=State.FAIL,
        saw="there is no cluster.json, but this log has kept records there",
        next="mount the volume of the store, correct objects.url, or restore the objects",
    )
    if _is_still_to_come(config, directory):
        return lost if begun else Finding(check="store", state=State.OK, saw="records will be kept in the directory")
    async with _opened(config, directory) as objects:
        owner = await bound_to(objects)
        if begun and owner is None:
            return lost
        await probe(objects, SystemEntropy())
    saw = "create-only puts are honoured"
    return Finding(check="store", state=State.OK, saw=f"{saw}; bound to cluster {owner}" if owner else saw)


async def _clock(config: Config, directory: DataDirectory) -> Finding:
    """Whether this machine and the store agree about the time, for the store vouches for us (Q7)."""
    if _is_still_to_come(config, directory):
        return Finding(check="clock", state=State.OK, saw="there is nothing yet to compare it with")
    async with _opened(config, directory) as objects:
        skew_ms = SystemClock().wall_ms() - await store_date(objects, SystemEntropy())
    saw = f"this machine's clock is {skew_ms / 1000:+.1f} s from the store's"
    if abs(skew_ms) <= STORE_SKEW_MS:
        return Finding(check="clock", state=State.OK, saw=saw)
    return Finding(check="clock", state=State.WARN, saw=saw, next="correct the clock of this machine, or the store's")


def _is_still_to_come(config: Config, directory: DataDirectory) -> bool:
    return config.get(ObjectsSettings).url is None and not directory.objects.exists()


@asynccontextmanager
async def _opened(config: Config, directory: DataDirectory) -> AsyncIterator[Objects]:
    settings = config.get(ObjectsSettings)
    offload = ThreadOffload(2)
    try:
        objects = await open_beside(settings.url or str(directory.objects), store_of(settings), _effects(offload))
        try:
            yield objects
        finally:
            await objects.close()
    finally:
        offload.close()


def _effects(offload: Offload) -> Effects:
    return Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)


async def _of_logs(config: Config, directory: DataDirectory) -> list[Finding]:
    """What the log says, and by which rules it is folded."""
    place = config.get(LogSettings).place
    if isinstance(place, SharedLogs):
        log, machines = await _shared(config, place)
        return [log] if not machines else [log, _rules(machines, None)]
    if isinstance(place, ServedLogs) and isinstance(place.address, Path):
        directory = DataDirectory.at(place.address.parent, LocalDisk())
    log, machines = await _log(directory)
    return [log] if not machines else [log, _rules(machines, directory.root)]


async def _shared(config: Config, url: SharedLogs) -> tuple[Finding, list[Machine]]:
    """A log that brokers of several machines share: what keeps it, and what every domain of it says."""
    engine = await _engine(url) if isinstance(url, EtcdLogs | OxiaLogs) else None
    if engine is not None and engine.state is State.FAIL:
        return engine, []
    found, machines = await _domains(config, url)
    if engine is None or found.state is State.FAIL:
        return found, machines
    worse = engine if engine.state is State.WARN else found
    both = f"{engine.saw}; {found.saw}"
    return Finding(check="log", state=worse.state, saw=both, next=worse.next), machines


async def _domains(config: Config, url: SharedLogs) -> tuple[Finding, list[Machine]]:
    """Every domain folded to its end, beside whoever writes it."""
    offload = ThreadOffload(2)
    effects = _effects(offload)
    place = cluster_place(url, store_of(config.get(ObjectsSettings)), effects)
    try:
        async with asyncio.timeout(LOOK_S), visit(place, effects) as visited:
            machines = [await visited.machine(domain, effects) for domain in visited.domains(effects)]
    except NoCluster as error:
        objects = await place.open_objects()
        try:
            if await was_begun(objects):  # ND6
                return Finding(
                    check="log", state=State.FAIL, saw=f"{error}, but the store holds the records of a cluster",
                    next="set log.url to what its other brokers use, or restore the log from a backup",
                ), []  # fmt: skip
        finally:
            await objects.close()
        return _NO_LOG, []
    finally:
        offload.close()
    return _compared(machines, SystemClock().wall_ms()), machines


async def _engine(url: EtcdLogs | OxiaLogs) -> Finding:
    """Whether every server of the engine answers, and has room (LG29) or somebody who leads."""
    async with asyncio.timeout(LOOK_S):
        if isinstance(url, EtcdLogs):
            from dray.log.etcd.survey import survey

            found = await survey(url)
        else:
            from dray.log.oxia.survey import survey as survey_oxia

            found = await survey_oxia(url)
    saw = "; ".join(found.said)
    if found.failed:
        return Finding(check="log", state=State.FAIL, saw=saw, next=found.failed)
    return Finding(check="log", state=State.WARN if found.next else State.OK, saw=saw, next=found.next)


async def _log(directory: DataDirectory) -> tuple[Finding, list[Machine]]:
    """Every domain of a directory, read as it lies or beside its owner."""
    disk, machines = LocalDisk(), list[Machine]()
    try:
        for domain in sorted(directory.domains(disk)) or [CATALOG_DOMAIN]:
            async with asyncio.timeout(LOOK_S), inspect(directory, domain, disk) as inspected:
                if inspected.damage is not None:
                    return _damaged(directory, domain, inspected.damage), []
                machines.append(await current_machine(inspected))
    except NotFound:
        return _NO_LOG, []
    return _compared(machines, SystemClock().wall_ms()), machines


def _damaged(directory: DataDirectory, domain: int, damage: Damage) -> Finding:
    which = "" if domain == CATALOG_DOMAIN else f" --domain {domain}"
    return Finding(
        check="log",
        state=State.FAIL,
        saw=f"the log is damaged at position {damage.position}: {damage.reason}",
        next=f"restore a backup, or run: drayd admin meta recover {directory.root}{which}",
    )


def _rules(machines: Sequence[Machine], directory: Path | None) -> Finding:
    """Whether this build could do more than it is let."""
    active, newest = active_version(machines), newest_version()
    if active == newest:
        saw = f"version {active} of the rules is active, the newest that this build knows"
        return Finding(check="rules", state=State.OK, saw=saw)
    old = sum(machine.version == active for machine in machines)
    where = "" if old == len(machines) else f" in {old} of {len(machines)} domains"
    return Finding(
        check="rules",
        state=State.WARN,
        saw=f"version {active} of the rules is active{where}; this build knows version {newest}",
        next=f"when every process is of this build, run: {activation_command(directory)}",
    )


def _compared(machines: Sequence[Machine], wall_ms: int) -> Finding:
    """Whether the log and this machine agree about the time (Q7)."""
    machine = machines[CATALOG_DOMAIN]
    saw = f"{machine.position} entries, digest {machine.digest:016x}"
    if len(machines) > 1:
        saw = f"{len(machines)} domains; the catalog: {saw}"
    hours = (machine.timeline.sure_ms - wall_ms) / 3_600_000
    if is_ahead(machine, wall_ms):
        return Finding(
            check="log",
            state=State.FAIL,
            saw=f"{saw}; its time is {hours:.1f} h ahead of this machine's clock, so nothing is deleted by time",
            next="correct the clock; if it is right, stop the broker and run: drayd admin meta recover DIR",
        )
    if abs(hours) > 1:
        saw += f"; its time is {hours:+.1f} h from this machine's clock: when no broker ran it does not count"
    return Finding(check="log", state=State.OK, saw=saw)
