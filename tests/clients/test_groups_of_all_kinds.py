"""Groups of one to five members of every library and assignor: members come, go, are restarted, die and fall asleep."""

import itertools
from collections.abc import Iterator

import pytest

from dray.testing import broker

from .living import QUICK, follow_a_pattern, grow, live

pytestmark = pytest.mark.slow
_names = itertools.count()
FIVE = ["confluent/range", "confluent-consumer/uniform", "aiokafka/roundrobin", "kafka-python/range"]
"""One assignor of each library, and each protocol."""
THREE = [
    "confluent/roundrobin", "confluent/cooperative-sticky", "confluent-consumer/range", "aiokafka/range",
    "aiokafka/sticky", "kafka-python/roundrobin", "kafka-python/sticky", "kafka-python/cooperative-sticky",
]  # fmt: skip
LIBRARIES = ["confluent", "confluent-consumer", "aiokafka", "kafka-python"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(**QUICK) as running:
        yield running.bootstrap


@pytest.fixture
def name() -> str:
    return f"lives-{next(_names)}"


@pytest.mark.parametrize(("kind", "most"), [(kind, 5) for kind in FIVE] + [(kind, 3) for kind in THREE])
def test_each_record_is_committed_once_whatever_happens_to_members(
    bootstrap: str, name: str, kind: str, most: int
) -> None:
    """R-166, R-172, R-175, R-177, R-190."""
    live(kind, bootstrap, name, most, restarts=kind in FIVE)


@pytest.mark.long
@pytest.mark.parametrize("most", [3, 4, 5])
@pytest.mark.parametrize("kind", FIVE + THREE)
def test_groups_of_every_size_and_kind_live_again_and_again(bootstrap: str, name: str, kind: str, most: int) -> None:
    """R-166, R-172, R-175, R-177, R-190."""
    for number in range(3):
        live(kind, bootstrap, f"{name}-{number}", most)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_pattern_finds_topics_that_are_made_later(bootstrap: str, name: str, kind: str) -> None:
    """R-183."""
    follow_a_pattern(kind, bootstrap, name)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_partitions_that_are_added_are_shared_too(bootstrap: str, name: str, kind: str) -> None:
    """R-183."""
    grow(kind, bootstrap, name)
