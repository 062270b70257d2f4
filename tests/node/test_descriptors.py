"""Connections leave the store and the log enough files to open."""

import pytest

from dray.node.descriptors import OPEN_AT_START, OWN_LEAST, share
from dray.servers.kafka.settings import Limits


@pytest.mark.parametrize("most_open", [256, 1024, 4096, 65_536, 1 << 20])
def test_whatever_the_limit_something_is_kept_back(most_open: int) -> None:
    """ND20."""
    given = share(Limits(max_connections=1 << 20), most_open)
    assert given.limits.max_connections + given.backlog + OPEN_AT_START + OWN_LEAST <= most_open
    assert given.limits.max_connections >= most_open // 4
    assert given.backlog >= 16


def test_a_limit_that_is_far_away_changes_nothing() -> None:
    assert share(Limits(), 1 << 20).limits == Limits()


def test_even_where_hardly_any_file_may_be_open_somebody_is_let_in() -> None:
    assert share(Limits(), 64).limits.max_connections == 1
