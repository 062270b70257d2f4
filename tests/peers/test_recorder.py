"""Apache Kafka still answers what was recorded of it."""

import pytest

from tests.golden.comparison.recording import recorded
from tests.golden.comparison.scenes import SCENES
from tests.golden.comparison.servers import kafka_plays

pytestmark = pytest.mark.peers


def test_kafka_answers_what_was_recorded() -> None:
    """R-222. If this fails: `python -m tests.golden.comparison --record` records again; read what changed."""
    kept, now = recorded(), kafka_plays(SCENES).answers
    assert now.keys() == kept.keys()
    assert {shape: tree for shape, tree in now.items() if tree != kept[shape]} == {}
