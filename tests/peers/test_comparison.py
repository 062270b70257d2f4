"""The comparison with Apache Kafka: every difference is known, wanted, and on the page."""

import pytest

from dray.servers.kafka.support import APIS
from tests.peers.comparison.comparing import Comparison
from tests.peers.comparison.page import PAGE, page_of, unneeded
from tests.peers.comparison.reasons import reason_of
from tests.peers.comparison.scenes import SCENES
from tests.peers.comparison.servers import run

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return run(SCENES)


def test_every_api_that_is_advertised_is_compared_in_its_first_and_last_version(comparison: Comparison) -> None:
    """K-022"""
    wanted = {(api.key, version) for api in APIS for version in api.served}
    missing = wanted - comparison.asked
    assert missing == set()
    assert len(comparison.dray) > 500


def test_every_difference_has_its_reason(comparison: Comparison) -> None:
    """A new one is a fault to be mended, or a choice to be explained in `reasons`."""
    assert [one for one in comparison.differences if reason_of(one) is None] == []


def test_every_reason_is_needed(comparison: Comparison) -> None:
    assert [reason.why for reason in unneeded(comparison)] == []


def test_the_page_tells_what_the_run_found(comparison: Comparison) -> None:
    """If this fails: `python -m tests.peers.comparison` writes the page again."""
    assert PAGE.read_text(encoding="utf-8") == page_of(comparison)
