"""What a process of this machine does its work with: the system's clock and disk, threads, and its object store."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from dray.clock import SystemClock
from dray.config import Config
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.node import telemetry
from dray.node.metadata import Effects
from dray.node.pools import Pools
from dray.node.store import ClusterStore, OpenStore
from dray.objects.opening import StoreEffects, open_store
from dray.objects.settings import ObjectsSettings
from dray.telemetry import logger


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEffects:
    """The effects of one process."""

    effects: Effects
    store: ClusterStore
    pools: Pools


def of_process(stack: AsyncExitStack, config: Config, open_objects: OpenStore = open_store) -> ProcessEffects:
    """Real ones, whose threads end with the stack."""
    clock, entropy, disk, pools = SystemClock(), SystemEntropy(), LocalDisk(), Pools()
    stack.callback(_close_pools, pools, clock)
    effects = Effects(
        clock=clock, entropy=entropy, disk=disk, offload=pools.log, upkeep=pools.upkeep, unpack=pools.unpack
    )
    of_store = StoreEffects(
        clock=clock, entropy=entropy, disk=disk, offload=pools.puts, reads=pools.reads, upkeep=pools.upkeep
    )
    store = ClusterStore(config.get(ObjectsSettings), of_store, open_objects)
    return ProcessEffects(effects=effects, store=store, pools=pools)


def _close_pools(pools: Pools, clock: SystemClock) -> None:
    hanging = pools.close(clock)
    if hanging:
        logger().error(telemetry.HANGS, pools=",".join(hanging))
