"""Dray against the recorded answers of Apache Kafka: every difference is known, wanted, and on the page."""

import pytest

from dray.servers.kafka.support import APIS
from tests.golden.comparison.comparing import Difference, Played, differences
from tests.golden.comparison.page import PAGE, page_of, unneeded
from tests.golden.comparison.reasons import reason_of
from tests.golden.comparison.recording import recorded
from tests.golden.comparison.scenes import SCENES
from tests.golden.comparison.servers import dray_plays

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[1, 4], ids=["one-domain", "four-domains"])
def played(request: pytest.FixtureRequest) -> Played:
    return dray_plays(SCENES, request.param)


@pytest.fixture(scope="module")
def found(played: Played) -> list[Difference]:
    return differences(recorded(), played.answers)


def test_every_api_that_is_advertised_is_compared_in_its_first_and_last_version(played: Played) -> None:
    """K-022"""
    wanted = {(api.key, version) for api in APIS for version in api.served}
    assert wanted - played.asked == set()
    assert len(played.answers) > 500


def test_every_difference_has_its_reason(found: list[Difference]) -> None:
    """R-222: a new one is a fault to be mended, or a choice to be explained in `reasons`."""
    assert [one for one in found if reason_of(one) is None] == []


def test_every_reason_is_needed(found: list[Difference]) -> None:
    assert [reason.why for reason in unneeded(found)] == []


def test_the_page_tells_what_the_run_found(played: Played, found: list[Difference]) -> None:
    """If this fails: `python -m tests.golden.comparison` writes the page again."""
    assert PAGE.read_text(encoding="utf-8") == page_of(found, len(played.answers))


def test_an_answer_that_kafka_would_not_give_is_a_difference(played: Played) -> None:
    kept = recorded()
    shape = next(one for one in kept if one.startswith("offsets committed: "))
    other = {**played.answers, shape: "the connection is closed"}
    assert [one for one in differences(kept, other) if one.shape == shape and reason_of(one) is None] != []
