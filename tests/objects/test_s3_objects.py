"""Objects in S3: the contract on moto and on versitygw, and races between processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.objects.contract import ObjectsContract
from tests.objects.racing import one_winner_each, race_processes
from tests.objects.servers import S3Server, effects, moto, versity

from dray.objects.cloud import NoBucket
from dray.objects.opening import StoreOptions, open_store
from dray.objects.port import Denied, NoSuchObject, Objects
from dray.objects.probe import probe


@pytest.fixture(scope="module")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="module")
def versity_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("versity")) as server:
        yield server


class S3Contract(ObjectsContract):
    @pytest.fixture
    async def objects(self, server: S3Server) -> AsyncIterator[Objects]:
        objects = await open_store(f"s3://{server.new_bucket()}/some/prefix", server.options, effects())
        yield objects
        await objects.close()

    async def test_two_prefixes_of_a_bucket_do_not_meet(self, server: S3Server) -> None:
        """R-027"""
        bucket = server.new_bucket()
        one = await open_store(f"s3://{bucket}/one", server.options, effects())
        two = await open_store(f"s3://{bucket}/two", server.options, effects())
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

    async def test_a_missing_bucket_says_what_to_do(self, server: S3Server) -> None:
        objects = await open_store("s3://no-such-bucket/prefix", server.options, effects())
        with pytest.raises(NoBucket, match="create it, or correct the address"):
            await objects.put("a", [b"x"])
        with pytest.raises(NoBucket, match="create it, or correct the address"):
            assert [info async for info in objects.list("")] == []

    def test_of_puts_racing_in_four_processes_exactly_one_wins(self, server: S3Server) -> None:
        """O2"""
        names = [f"race/{number}" for number in range(8)]
        winners = race_processes(f"s3://{server.new_bucket()}/prefix", server.options, names)
        assert one_winner_each(winners), winners


class TestMoto(S3Contract):
    @pytest.fixture
    def server(self, moto_server: S3Server) -> S3Server:
        return moto_server

    @pytest.mark.slow
    async def test_a_listing_of_many_pages_is_complete_and_in_order(self, objects: Objects) -> None:
        await super().test_a_listing_of_many_pages_is_complete_and_in_order(objects)

    @pytest.mark.slow
    def test_of_puts_racing_in_four_processes_exactly_one_wins(self, server: S3Server) -> None:
        super().test_of_puts_racing_in_four_processes_exactly_one_wins(server)


@pytest.mark.peers
class TestVersity(S3Contract):
    @pytest.fixture
    def server(self, versity_server: S3Server) -> S3Server:
        return versity_server

    async def test_wrong_credentials_say_so(self, server: S3Server) -> None:
        options = StoreOptions(
            endpoint=server.options.endpoint, region="us-east-1", access_key="peer-access", secret_key="wrong"
        )
        objects = await open_store(f"s3://{server.new_bucket()}", options, effects())
        for call in (objects.put("a", [b"x"]), objects.get("a")):
            with pytest.raises(Denied, match="refused the credentials") as caught:
                await call
            assert "wrong" not in str(caught.value)


@pytest.mark.slow
def test_of_puts_into_one_directory_from_four_processes_exactly_one_wins(tmp_path: Path) -> None:
    """O2, for local files; opening processes sweep each other's temporary files meanwhile."""
    names = [f"race/{number}" for number in range(200)]
    winners = race_processes(str(tmp_path / "objects"), StoreOptions(), names)
    assert one_winner_each(winners), {name: won for name, won in winners.items() if len(won) != 1}
    for name, bodies in winners.items():
        assert (tmp_path / "objects" / name).read_text() == bodies[0]
