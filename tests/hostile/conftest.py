"""One broker process whose memory is watched."""

from collections.abc import Iterator

import pytest

from tests.durability.daemon import Drayd


@pytest.fixture(scope="package")
def drayd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drayd]:
    with Drayd(tmp_path_factory.mktemp("hostile") / "data") as running:
        yield running
