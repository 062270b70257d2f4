"""A prefix belongs to one cluster."""

import asyncio

import pytest

from dray.errors import Corrupt
from dray.ids import SeededEntropy
from dray.objects.cluster import ForeignPrefix, NewerPrefix, bind, bound_to
from dray.objects.memory import MemoryObjects
from dray.objects.probe import NoCreateOnly, probe


async def test_a_free_prefix_is_bound_and_stays_bound() -> None:
    """O9"""
    objects = MemoryObjects()
    assert await bound_to(objects) is None
    await bind(objects, "cluster-a")
    await bind(objects, "cluster-a")
    assert await bound_to(objects) == "cluster-a"


async def test_a_prefix_of_another_cluster_is_refused_and_left_alone() -> None:
    """O9; bad input: a bucket of another cluster."""
    objects = MemoryObjects()
    await bind(objects, "cluster-a")
    before = bytes(await objects.get("cluster.json"))
    with pytest.raises(ForeignPrefix, match="correct the store's address") as caught:
        await bind(objects, "cluster-b")
    assert caught.value.facts == {"prefix_of": "cluster-a", "ours": "cluster-b"}
    assert bytes(await objects.get("cluster.json")) == before


async def test_of_clusters_that_bind_at_once_one_wins() -> None:
    """O9"""
    objects = MemoryObjects()
    outcomes = await asyncio.gather(*(bind(objects, f"c{number}") for number in range(8)), return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ForeignPrefix) for outcome in outcomes) == 7


async def test_a_binding_with_fields_we_do_not_know_is_read() -> None:
    objects = MemoryObjects()
    await objects.put("cluster.json", [b'{"cluster_id": "cluster-a", "note": "x", "version": 1}'])
    await bind(objects, "cluster-a")


async def test_a_binding_of_a_newer_release_says_to_upgrade() -> None:
    objects = MemoryObjects()
    await objects.put("cluster.json", [b'{"version": 2, "clusters": ["a"]}'])
    with pytest.raises(NewerPrefix, match="upgrade this one"):
        await bind(objects, "cluster-a")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b'{"version": 1}', b'{"version": "1", "cluster_id": "a"}', b"\xff\xfe", b" " * 10_000),
        *(b'{"version": 0, "cluster_id": "a"}', b'{"version": 1, "cluster_id": ""}', b'{"cluster_id": "a"}'),
    ],
)
async def test_an_unreadable_binding_is_an_error_that_says_what_to_do(content: bytes) -> None:
    objects = MemoryObjects()
    await objects.put("cluster.json", [content])
    with pytest.raises(Corrupt, match="restore it"):
        await bind(objects, "cluster-a")
    assert bytes(await objects.get("cluster.json")) == content


class OverwritingObjects(MemoryObjects):
    """A store that takes the condition and ignores it."""

    async def put(self, path, parts) -> None:
        self._objects.pop(path, None)
        await super().put(path, parts)


class RacyObjects(MemoryObjects):
    """A store that looks first and writes later."""

    async def put(self, path, parts) -> None:
        exists = path in self._objects
        await asyncio.sleep(0)
        if not exists:
            self._objects.pop(path, None)
        await super().put(path, parts)


@pytest.mark.parametrize("store", [OverwritingObjects, RacyObjects])
async def test_a_store_without_create_only_puts_is_found_out(store: type[MemoryObjects]) -> None:
    """R-217, S10; bad input: a store that ignores If-None-Match."""
    objects = store()
    await objects.put("kept", [b"x"])
    with pytest.raises(NoCreateOnly, match="use a store that honours If-None-Match"):
        await probe(objects, SeededEntropy(1))
    assert [info.path async for info in objects.list("")] == ["kept"], "the probe cleans up and touches nothing else"


async def test_a_good_store_passes_the_probe() -> None:
    objects = MemoryObjects()
    await probe(objects, SeededEntropy(1))
    assert [info.path async for info in objects.list("")] == []
