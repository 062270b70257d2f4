"""A broker that is killed or stopped under a group: nobody loses its place."""

from pathlib import Path

import pytest

from tests.durability.daemon import Drayd

from .grouped import Member, eventually, fill, make_topic, share
from .test_groups import EACH, PARTITIONS, committed, read_all


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["confluent", "aiokafka", "kafka-python"])
def test_a_broker_that_is_killed_comes_back_to_the_same_group(tmp_path: Path, kind: str) -> None:
    """R-166, R-186, R-190: members, generation and offsets are where they were."""
    with Drayd(tmp_path / "data") as daemon:
        bootstrap, name = daemon.bootstrap, "orders"
        make_topic(bootstrap, name, PARTITIONS)
        fill(bootstrap, name, PARTITIONS, EACH)
        with Member(kind, bootstrap, name, name) as first, Member(kind, bootstrap, name, name) as second:
            share([first, second], PARTITIONS)
            read_all([first, second], rounds=1)
            daemon.kill()
            daemon.start()
            fill(bootstrap, name, PARTITIONS, EACH)
            read_all([first, second], rounds=2)
            share([first, second], PARTITIONS)
            eventually("all is committed", lambda: committed(bootstrap, name, name) == [2 * EACH] * PARTITIONS)
