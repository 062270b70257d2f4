"""Which shard has a key, and who leads it: what Oxia's assignments say. Pure.

A shard has a range of hashes. The hash of a key is the lower half of its
XXH3; with a partition key, that of the partition key.
"""

from dataclasses import dataclass

import xxhash

from dray.errors import Unavailable
from dray.log.oxia import oxia_pb2 as pb


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Where the keys of one partition key are."""

    shard: int
    leader: str
    """HOST:PORT; empty while nobody leads."""


def hash_of(partition_key: str) -> int:
    return xxhash.xxh3_64_intdigest(partition_key.encode()) & 0xFFFFFFFF


def place_of(partition_key: str, assignments: pb.Assignments, namespace: str) -> ShardPlace | None:
    """Where Oxia keeps a partition key; None: the assignments do not tell.

    Raises:
        Unavailable: keys are spread in a way that we do not know.
    """
    found = assignments.namespaces.get(namespace)
    if found is None:
        return None
    if found.router != pb.XXHASH3:
        raise Unavailable("Oxia spreads keys in a way that this version does not know", router=found.router)
    wanted = hash_of(partition_key)
    for shard in found.shards:
        if shard.hashes.first <= wanted <= shard.hashes.last:
            return ShardPlace(shard.shard, shard.leader)
    return None
