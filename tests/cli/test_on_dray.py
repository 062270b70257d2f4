"""What a user does with `dray`, on a broker of Dray."""

import pytest

from dray.servers.kafka.support import Matrix
from dray.testing import broker
from tests.cli.command_story import STORIES, Shop, tell_growth, tell_trimming

CREATE_PARTITIONS, DELETE_RECORDS = 37, 21
NEEDS = {tell_growth: CREATE_PARTITIONS, tell_trimming: DELETE_RECORDS}


@pytest.fixture(scope="module")
def shop():
    with broker(topics__auto_create="false") as running:
        yield Shop(running.bootstrap)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_user_can(shop, story):
    """Where the broker lacks what it takes, that is what is told."""
    if story in NEEDS and Matrix().get(NEEDS[story]) is None:
        with pytest.raises(AssertionError, match="the broker does not speak this"):
            story(shop)
    else:
        story(shop)
