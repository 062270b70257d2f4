"""One sync of a domain answers everything that one request asks of it."""

import asyncio

import pytest

from dray.errors import Unavailable
from dray.replica.freshness import Freshness


class Counted:
    """Stands in for a replica whose syncs are counted."""

    def __init__(self, error: Exception | None = None) -> None:
        self.syncs = 0
        self._error = error

    async def sync(self) -> None:
        self.syncs += 1
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error


async def test_a_domain_is_synced_once_for_a_request_and_again_for_the_next() -> None:
    """RP20."""
    one, other = Counted(), Counted()
    fresh = Freshness()
    for _ in range(1_000):
        await fresh.of(one)
    await fresh.of(other)
    assert (one.syncs, other.syncs) == (1, 1)
    await Freshness().of(one)
    assert one.syncs == 2


async def test_a_sync_that_failed_fails_all_of_its_request_and_is_not_tried_again() -> None:
    """RP20: a thousand partitions do not wait for a thousand deadlines."""
    broken = Counted(Unavailable("the log does not answer"))
    fresh = Freshness()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await fresh.of(broken)
    assert broken.syncs == 1
