"""Objects in S3, Azure and GCS, opened by their addresses: the contract on each, and races between processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.objects.opening import StoreOptions
from dray.objects.port import Objects
from tests.objects.cloud_contract import CloudContract, LockedContract
from tests.objects.racing import one_winner_each, race_processes
from tests.objects.servers import AzureServer, CloudServer, GcsServer, S3Server, azure, gcs, moto, versity


@pytest.fixture(scope="module")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="module")
def versity_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("versity")) as server:
        yield server


@pytest.fixture(scope="module")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    with azure(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture(scope="module")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    with gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.mark.slow
class TestMoto(CloudContract):
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
class TestVersity(CloudContract, LockedContract):
    @pytest.fixture
    def server(self, versity_server: S3Server) -> S3Server:
        return versity_server


@pytest.mark.peers
class TestAzurite(CloudContract, LockedContract):
    """The emulator that Microsoft gives out."""

    @pytest.fixture
    def server(self, azure_server: AzureServer) -> AzureServer:
        return azure_server


class TestGcs(CloudContract, LockedContract):
    """Our double: it proves what we send, and what we make of the answers."""

    @pytest.fixture
    def server(self, gcs_server: GcsServer) -> GcsServer:
        return gcs_server

    @pytest.mark.slow
    def test_of_puts_racing_in_four_processes_exactly_one_wins(self, server: CloudServer) -> None:
        super().test_of_puts_racing_in_four_processes_exactly_one_wins(server)


@pytest.mark.slow
def test_of_puts_into_one_directory_from_four_processes_exactly_one_wins(tmp_path: Path) -> None:
    """O2, for local files; opening processes sweep each other's temporary files meanwhile."""
    names = [f"race/{number}" for number in range(200)]
    winners = race_processes(str(tmp_path / "objects"), StoreOptions(), names)
    assert one_winner_each(winners), {name: won for name, won in winners.items() if len(won) != 1}
    for name, bodies in winners.items():
        assert (tmp_path / "objects" / name).read_text() == bodies[0]
