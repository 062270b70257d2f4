"""A plane of a test's own parts, for `run_services`."""

import uuid

from dray.clock import Clock
from dray.ids import SeededEntropy
from dray.node.directory import FORMAT, Identity
from dray.node.plane import Plane
from dray.objects.port import Objects
from dray.offload import InlineOffload, Offload
from dray.replica.domains import Domains
from dray.tasks.watch import Watch

CLUSTER = b"cluster-of-tests"


def plane_of(
    domains: Domains, objects: Objects, clock: Clock, name: str = "broker-1", unpack: Offload | None = None
) -> Plane:
    """What a broker of this name stands on."""
    instance = uuid.UUID(bytes=name.encode().ljust(16, b"-")[:16])
    return Plane(
        identity=Identity(format=FORMAT, cluster_id=str(uuid.UUID(bytes=CLUSTER)), instance_id=str(instance)),
        domains=domains,
        objects=objects,
        clock=clock,
        entropy=SeededEntropy(name),
        unpack=unpack or InlineOffload(),
        watch=Watch(clock),
    )
