"""The truth of a simulated delta log: what its bucket was given, in order."""

from contextlib import suppress

import pytest

from dray.log.delta.commits import CommitOperation, commit_name, encode
from dray.sim.delta import DeltaCluster
from dray.sim.world import Violation, World


def commit(version: int, *operations: CommitOperation, entry: bytes = b"nonsense") -> bytes:
    return encode(version=version, now_ms=0, txn_id="test", operations=operations, entry=entry)


def lying() -> CommitOperation:
    return CommitOperation(
        origin_id=1, origin_seq=1, stream=65536, offset_start=7, offset_end=9, segment="s", position=0, size=1
    )


async def put(cluster: DeltaCluster, version: int, body: bytes) -> None:
    await cluster.bucket.put(commit_name(0, version), body, "somebody")


async def play(world: World) -> None:
    cluster = DeltaCluster(world, nodes=0)
    await cluster.found()
    await put(cluster, 1, commit(1))
    assert [entry.position for entry in cluster.log.history] == [1, 2]
    await cluster.bucket.delete(commit_name(0, 1), "trimmer", world.loop.time())
    await put(cluster, 1, commit(1, entry=b"of one who slept"))
    assert [entry.entry for entry in cluster.log.history][1:] == [b"nonsense"], "late: nobody's entry"
    with pytest.raises(Violation, match="foretold other offsets"):
        await put(cluster, 2, commit(2, lying()))
    with pytest.raises(Violation, match="passed over"):
        await put(cluster, 5, commit(5))


def test_versions_count_once_and_in_order_and_what_they_foretell_is_compared() -> None:
    """SM20"""
    world = World(1)
    try:
        with suppress(RuntimeError):  # a violation stops the world, whoever has caught it
            world.run(play)
        assert [str(one).split(" version=")[0] for one in world.violations] == [
            "a commit foretold other offsets than its batches got", "a version was passed over",
        ]  # fmt: skip
    finally:
        world.close()
