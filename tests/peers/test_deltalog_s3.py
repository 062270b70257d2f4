"""The delta log on a real S3 server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.objects.opening import StoreEffects, open_store
from dray.offload import InlineOffload
from tests.log import contract
from tests.log.contract import LogContract
from tests.log.test_deltalog import DeltaFactory
from tests.objects.servers import S3Server, versity

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
async def log_factory(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DeltaFactory]:
    monkeypatch.setattr(contract, "DEADLINE_S", 150)  # three writers at once take turns, a request after the other
    effects = StoreEffects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
    objects = await open_store(f"s3://{server.new_bucket()}/dray", server.options, effects)
    factory = DeltaFactory(objects)
    yield factory
    await factory.close()
    await objects.close()


class TestDeltaLogOnS3(LogContract):
    pass
