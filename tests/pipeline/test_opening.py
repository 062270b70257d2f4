"""A planner finds the log of a data directory, wherever it is kept and whoever runs; no Spark."""

import pytest

from dray.node.joining import HasJoined
from dray.pipeline.opening import read_directory
from dray.testing import broker
from tests.pipeline.parts import broker_process, create, make_plan, numbered, produce, read


@pytest.mark.slow
def test_a_log_that_is_kept_elsewhere_is_read_beside_the_broker_and_without_it(tmp_path):
    """ND2, SP5, SP6: the directory says where its log is, to the planner and to the keeper of its pins."""
    data, logs = tmp_path / "data", tmp_path / "logs"
    with broker_process(data, f"log.url=local:{logs}") as started:
        create(started.bootstrap, "orders", 2)
        produce(started.bootstrap, "orders", numbered(0, 50))
        beside = read(make_plan(data, subscribe="orders"))
    assert len(beside) == 50
    assert not (data / "meta").exists()
    assert read(make_plan(data, subscribe="orders")) == beside


@pytest.mark.slow
def test_the_directory_of_a_broker_that_joined_is_refused_with_what_to_do(tmp_path):
    with broker(tmp_path / "a"), broker(tmp_path / "b", log__url=f"unix:{tmp_path}/a/meta.sock"):
        pass
    with pytest.raises(HasJoined, match="give the directory of the broker that keeps it"):
        read_directory(str(tmp_path / "b"))
