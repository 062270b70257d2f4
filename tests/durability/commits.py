"""A log of commits, as anybody can read it."""

import json

from dray.log.delta.commits import commits_prefix
from dray.objects.port import Objects


async def check_commits(log: Objects, records: Objects) -> None:
    """Versions without a hole, offsets without a hole, and every batch lies where a commit says."""
    versions, ends = [], dict[int, int]()
    async for info in log.list(commits_prefix(0)):
        commit = json.loads(bytes(await log.get(info.path)))
        versions.append(commit["version"])
        assert {"timestamp", "txn_id", "operations", "checkpoint_hint"} <= set(commit)
        for one in commit["operations"]:
            assert one["type"] == "add"
            assert one["offset_start"] == ends.get(one["stream"], 0), one
            ends[one["stream"]] = one["offset_end"] + 1
            assert (await records.head(one["segment"])).size >= one["position"] + one["size"]
    assert versions == list(range(len(versions)))
    assert sum(ends.values()) > 100
