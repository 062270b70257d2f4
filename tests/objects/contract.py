"""What every `Objects` does: subclass and give an `objects` fixture with an empty store. R-217"""

import asyncio

import pytest

from dray.errors import Invalid
from dray.objects.port import AlreadyExists, NoSuchObject, ObjectInfo, Objects, ShortObject

RACERS = 16
BAD_NAMES = (
    *("", "/", "/abs", "a//b", "a/", "../up", "a/../b", ".", "a/./b", ".tmp/x", "a b", "a\\b"),
    *("ä", "a\0b", "a\n", "%2e%2e/a", "x" * 241, "a" + "/b" * 400),
)


class ObjectsContract:
    async def test_what_is_put_is_got_whole_and_by_range(self, objects: Objects) -> None:
        parts = [b"one", bytearray(b"two"), memoryview(b"xthreex")[1:-1], b""]
        await objects.put("a/b/c.wo", parts)
        assert bytes(await objects.get("a/b/c.wo")) == b"onetwothree"
        assert bytes(await objects.get("a/b/c.wo", 3, 6)) == b"two"
        assert bytes(await objects.get("a/b/c.wo", 6)) == b"three"
        assert bytes(await objects.get("a/b/c.wo", 0, 11)) == b"onetwothree"
        assert bytes(await objects.get("a/b/c.wo", 4, 4)) == b""
        assert bytes(await objects.get("a/b/c.wo", 11)) == b""
        assert isinstance(await objects.get("a/b/c.wo"), memoryview)

    async def test_an_object_may_be_empty(self, objects: Objects) -> None:
        await objects.put("empty", [])
        assert bytes(await objects.get("empty")) == b""
        assert (await objects.head("empty")).size == 0

    async def test_large_objects_of_many_parts_arrive_whole(self, objects: Objects) -> None:
        parts = [bytes([number % 251]) * 1500 for number in range(4_000)]
        await objects.put("large", parts)
        assert (await objects.head("large")).size == 6_000_000
        assert await objects.get("large") == b"".join(parts)
        assert bytes(await objects.get("large", 1_499, 1_501)) == b"\x00\x01"

    async def test_a_name_is_written_once(self, objects: Objects) -> None:
        """O2, O3"""
        await objects.put("a", [b"first"])
        for other in ([b"other"], [b"first and more"], [b"fir"], []):
            with pytest.raises(AlreadyExists):
                await objects.put("a", other)
        assert bytes(await objects.get("a")) == b"first"

    async def test_repeating_a_put_with_the_same_bytes_succeeds(self, objects: Objects) -> None:
        """O3, however the bytes are cut into parts."""
        await objects.put("a", [b"first"])
        await objects.put("a", [b"fi", b"", b"rst"])
        assert bytes(await objects.get("a")) == b"first"

    async def test_of_racing_puts_exactly_one_wins(self, objects: Objects) -> None:
        """O2"""
        for number in range(5):
            name = f"race/{number}"
            bodies = [f"racer {racer}".encode() * 100 for racer in range(RACERS)]
            won = await asyncio.gather(*(_wins(objects, name, body) for body in bodies))
            assert sum(won) == 1, name
            assert bytes(await objects.get(name)) == bodies[won.index(True)]

    async def test_racing_puts_of_the_same_bytes_all_succeed(self, objects: Objects) -> None:
        """O3"""
        await asyncio.gather(*(objects.put("same", [b"bytes" * 1000]) for _ in range(RACERS)))
        assert bytes(await objects.get("same")) == b"bytes" * 1000

    async def test_what_is_not_there_is_not_found(self, objects: Objects) -> None:
        await objects.put("dir/object", [b"x"])
        for name in ("nothing", "dir", "dir/object2", "dir/nothing/below"):
            with pytest.raises(NoSuchObject):
                await objects.get(name)
            with pytest.raises(NoSuchObject):
                await objects.get(name, 0, 1)
            with pytest.raises(NoSuchObject):
                await objects.head(name)

    async def test_a_range_beyond_the_end_is_a_short_object(self, objects: Objects) -> None:
        """Bad input: an object that was cut, or an index that is wrong."""
        await objects.put("a", [b"12345"])
        for start, end in ((0, 6), (4, 7), (5, 6), (9, 10), (7, 7), (6, None), (0, 1 << 50)):
            with pytest.raises(ShortObject, match="ends before"):
                await objects.get("a", start, end)

    async def test_a_range_that_no_object_can_have_is_invalid(self, objects: Objects) -> None:
        await objects.put("a", [b"12345"])
        for start, end in ((-1, 3), (3, 2), (-2, None)):
            with pytest.raises(Invalid):
                await objects.get("a", start, end)

    async def test_a_head_tells_size_and_age(self, objects: Objects) -> None:
        await objects.put("dir/a", [b"12", b"345"])
        found = await objects.head("dir/a")
        assert (found.path, found.size) == ("dir/a", 5)
        assert found.modified_ms > 1_600_000_000_000

    async def test_deleting_twice_is_success_and_frees_the_name(self, objects: Objects) -> None:
        await objects.put("dir/a", [b"first"])
        await objects.delete("dir/a")
        await objects.delete("dir/a")
        await objects.delete("never/was")
        with pytest.raises(NoSuchObject):
            await objects.head("dir/a")
        await objects.put("dir/a", [b"second"])
        assert bytes(await objects.get("dir/a")) == b"second"

    async def test_a_listing_is_in_order_of_name_and_by_prefix(self, objects: Objects) -> None:
        names = ["a/x", "a.b", "a-c", "a/y/z", "ab", "b", "a/x.1", "a/w/1"]
        for name in names:
            await objects.put(name, [name.encode()])
        assert [info.path for info in await _listed(objects, "")] == sorted(names)
        assert [info.path for info in await _listed(objects, "a/")] == ["a/w/1", "a/x", "a/x.1", "a/y/z"]
        assert [info.path for info in await _listed(objects, "a/x")] == ["a/x", "a/x.1"]
        assert [info.path for info in await _listed(objects, "a")] == sorted(set(names) - {"b"})
        assert await _listed(objects, "nothing/here/") == []
        assert all(info.size == len(info.path) for info in await _listed(objects, ""))

    async def test_a_listing_of_many_pages_is_complete_and_in_order(self, objects: Objects) -> None:
        names = [f"many/{number:05}" for number in range(1_100)]
        for start in range(0, len(names), 100):
            await asyncio.gather(*(objects.put(name, [b"."]) for name in names[start : start + 100]))
        assert [info.path for info in await _listed(objects, "many/")] == names

    @pytest.mark.parametrize(
        "name",
        BAD_NAMES,
    )
    async def test_a_bad_name_is_refused_everywhere(self, objects: Objects, name: str) -> None:
        """O5"""
        for call in (objects.put(name, [b"x"]), objects.get(name), objects.head(name), objects.delete(name)):
            with pytest.raises(Invalid):
                await call
        assert await _listed(objects, "") == []


async def _wins(objects: Objects, name: str, body: bytes) -> bool:
    try:
        await objects.put(name, [body])
    except AlreadyExists:
        return False
    return True


async def _listed(objects: Objects, prefix: str) -> list[ObjectInfo]:
    return [info async for info in objects.list(prefix)]
