"""The state of a domain as of any version of its log, for who only looks.

The log is opened where the configuration says, beside whoever writes it; the
fold begins at the newest published checkpoint that is not behind the version.
"""

from contextlib import AsyncExitStack

from dray.clock import SystemClock
from dray.config import Config
from dray.disk import LocalDisk
from dray.errors import Invalid, NotFound
from dray.ids import SystemEntropy
from dray.log.opening import LogEffects, open_log
from dray.log.port import Log, Trimmed
from dray.log.settings import LogSettings
from dray.log.urls import DeltaLogs
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.node.clustered import current_log
from dray.node.store import store_options
from dray.objects.opening import StoreEffects, open_store
from dray.objects.port import Objects
from dray.objects.settings import ObjectsSettings
from dray.offload import Offload, ThreadOffload
from dray.replica.checkpoints import PublishedCheckpoints
from dray.replica.fold import fold_to


async def state_of_version(config: Config, domain: int, version: int) -> Machine:
    """The state right after a version of the delta log was applied.

    Raises:
        Invalid: the configuration names no delta log.
        NotFound: there is no such version, or it was trimmed.
    """
    url, settings = config.get(LogSettings).place, config.get(ObjectsSettings)
    if not isinstance(url, DeltaLogs) or settings.url is None:
        raise Invalid("only a delta log has versions: set log.url to deltalog: and objects.url to the cluster's store")
    clock, disk = SystemClock(), LocalDisk()
    async with AsyncExitStack() as stack:
        offload = ThreadOffload(2)
        stack.callback(offload.close)
        effects = StoreEffects(clock=clock, entropy=SystemEntropy(), disk=disk, offload=offload)
        objects = await open_store(settings.url, store_options(settings), effects)
        stack.push_async_callback(objects.close)
        log = await open_log(url, domain, LogEffects(clock=clock, disk=disk, offload=offload, objects=objects))
        stack.push_async_callback(log.close)
        newest = await log.tail() - 1
        if version > newest:
            raise NotFound("the log has no such version yet", version=version, newest=newest)
        machine = await _begin(log, objects, domain, version + 1, offload)
        try:
            await fold_to(machine, log, version + 1)
        except Trimmed as error:
            raise NotFound("this version was trimmed, and no older checkpoint is kept", version=version) from error
    return machine


async def _begin(log: Log, objects: Objects, domain: int, upto: int, offload: Offload) -> Machine:
    """The newest published checkpoint up to a position, or nothing at all."""
    log_id = await current_log(log, domain, objects)
    published = PublishedCheckpoints(objects, log_id=log_id, domain=domain, offload=offload)
    known = [position for position in await published.confirmed() if position <= upto]
    return checkpoint.load(await published.read(max(known))) if known else Machine()
