"""`dray groups` about real groups of a real broker, of both protocols."""

import pytest

from dray.testing import broker
from tests.cli.group_story import tell_a_group, write_orders


@pytest.fixture(scope="module")
def bootstrap():
    with broker() as running:
        write_orders(running.bootstrap)
        yield running.bootstrap


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_listed_described_moved_and_deleted(bootstrap, capsys, protocol):
    tell_a_group(bootstrap, capsys, protocol)
