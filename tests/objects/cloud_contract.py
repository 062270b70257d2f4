"""What every cloud store does, over the contract of all stores: subclass and give a `server` fixture."""

from collections.abc import AsyncIterator

import pytest

from dray.objects.cloud import NoBucket
from dray.objects.opening import open_store
from dray.objects.port import Denied, NoSuchObject, Objects
from dray.objects.probe import probe
from tests.objects.contract import ObjectsContract
from tests.objects.racing import one_winner_each, race_processes
from tests.objects.servers import CloudServer, effects


class CloudContract(ObjectsContract):
    @pytest.fixture
    async def objects(self, server: CloudServer) -> AsyncIterator[Objects]:
        objects = await open_store(server.url("some/prefix"), server.options, effects())
        yield objects
        await objects.close()

    async def test_two_prefixes_of_a_bucket_do_not_meet(self, server: CloudServer) -> None:
        """R-027"""
        bucket = server.new_bucket()
        one = await open_store(f"{server.scheme}://{bucket}/one", server.options, effects())
        two = await open_store(f"{server.scheme}://{bucket}/two", server.options, effects())
        await one.put("wal/v1/zone=a/x", [b"1"])
        await two.delete("wal/v1/zone=a/x")
        with pytest.raises(NoSuchObject):
            await two.get("wal/v1/zone=a/x")
        assert [info.path async for info in two.list("")] == []
        assert [info.path async for info in one.list("")] == ["wal/v1/zone=a/x"]

    async def test_a_store_that_keeps_to_create_only_passes_the_probe(self, objects: Objects) -> None:
        """R-217"""
        await probe(objects, effects().entropy)
        assert [info.path async for info in objects.list("")] == []

    async def test_a_missing_bucket_says_what_to_do(self, server: CloudServer) -> None:
        """Bad input: never "no such object", which would say that the records are gone."""
        objects = await open_store(f"{server.scheme}://no-such-bucket/prefix", server.options, effects())
        for call in (objects.put("a", [b"x"]), objects.get("a"), objects.get("a", 1, 2)):
            with pytest.raises(NoBucket, match="create it, or correct the address"):
                await call
        with pytest.raises(NoBucket, match="create it, or correct the address"):
            assert [info async for info in objects.list("")] == []

    def test_of_puts_racing_in_four_processes_exactly_one_wins(self, server: CloudServer) -> None:
        """O2"""
        names = [f"race/{number}" for number in range(8)]
        winners = race_processes(server.url("prefix"), server.options, names)
        assert one_winner_each(winners), winners


class LockedContract:
    """For servers that let only those in who have the key."""

    async def test_wrong_credentials_say_so(self, server: CloudServer) -> None:
        """Bad input; the key itself is in no error."""
        wrong = server.wrong_options()
        objects = await open_store(server.url(), wrong, effects())
        for call in (objects.put("a", [b"x"]), objects.get("a"), objects.delete("a"), _first(objects)):
            with pytest.raises(Denied, match="refused the credentials") as caught:
                await call
            assert (
                wrong.secret_key or "never"
            ) not in f"{caught.value!r} {caught.value.facts} {caught.value.__cause__}"


async def _first(objects: Objects) -> None:
    async for _ in objects.list(""):
        return
