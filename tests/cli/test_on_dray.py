"""What a user does with `dray`, on a broker of Dray."""

import pytest

from dray.testing import broker
from tests.cli.command_story import STORIES, Shop


@pytest.fixture(scope="module")
def shop():
    with broker(topics__auto_create="false") as running:
        yield Shop(running.bootstrap)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_user_can(shop, story):
    story(shop)
