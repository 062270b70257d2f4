"""A cluster remembers that it was begun: a part that is missing later is damage, and no new cluster.

A log whose volume is not mounted looks like a log that was never begun, and
so does a store. So each part knows of the other, and is asked before anything
is written:

    DIR/log.json          a log was begun, and where it is kept
    log.json in the store a log was begun whose records are kept here
    cluster.json          in the store before the log begins (O9)

A first start writes in this order: identity, cluster.json, the log, log.json
in the store, DIR/log.json. Wherever it is cut short, the next one goes on.
Directories that are older than these marks get them at their next start;
until then objects of records in the store say that there was a log.

Invariants
    ND3  A broker begins a log only if neither its directory nor its store
         ever knew one, and uses a store for the first time only if no log
         was ever begun in its directory.
"""

from dray.disk import Disk
from dray.errors import Corrupt
from dray.node.directory import DataDirectory, Identity
from dray.objects.cluster import bound_to, mark_begun, was_begun
from dray.objects.port import Objects


async def check_birth(objects: Objects, directory: DataDirectory, identity: Identity, disk: Disk) -> None:
    """Raise `Corrupt` if the log or the store is not there though it was once (ND3). Writes nothing."""
    owner = await bound_to(objects)
    born = directory.knows_log(disk)
    directory.domains(disk)
    if owner is None and born:
        raise Corrupt(
            "the store has no cluster.json, but this log has kept records there: mount its volume, correct "
            "objects.url, or restore the objects",
            cluster=identity.cluster_id,
        )
    if owner == identity.cluster_id and not directory.holds_log(disk) and await was_begun(objects):
        raise Corrupt(
            "the store holds the records of a log that is not in this directory: mount the volume of the log, start "
            "with the --log that was used before, or restore the log from a backup",
            path=directory.meta, cluster=identity.cluster_id,
        )  # fmt: skip


async def remember_birth(objects: Objects, directory: DataDirectory, disk: Disk) -> None:
    """Tell both that the log was begun, once it is durable and the store is bound (ND3)."""
    await mark_begun(objects)
    directory.remember_log(disk)
