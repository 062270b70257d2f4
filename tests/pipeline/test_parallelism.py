"""How many tasks a plan is made for: as many as the cluster runs, not as many as the driver has cores."""

import os

import pytest

from dray.pipeline.parallelism import VARIABLE, cores, cores_of

HERE = os.cpu_count()


@pytest.mark.parametrize(
    ("master", "settings", "expected"),
    [
        ("local", {}, 1),
        ("local[3]", {}, 3),
        ("local[5, 4]", {}, 5),
        ("local[*,4]", {}, HERE),
        ("local-cluster[3, 2, 1024]", {}, 6),
        ("spark://host:7077", {}, None),
        ("spark://host:7077", {"spark.cores.max": "200"}, 200),
        ("yarn", {"spark.executor.instances": "50", "spark.executor.cores": "4"}, 200),
        ("k8s://host", {"spark.dynamicAllocation.maxExecutors": "10"}, 10),
        ("local[2]", {"spark.default.parallelism": "64", "spark.cores.max": "200"}, 64),
        ("local[2]", {"spark.cores.max": "200"}, 2),
        ("yarn", {"spark.default.parallelism": "many"}, None),
    ],
)
def test_a_session_tells_its_planners_what_its_settings_say(master, settings, expected):
    assert cores_of(master, settings) == expected


def test_a_planner_that_was_told_nothing_counts_its_own_cores():
    assert cores({VARIABLE: "200"}) == 200
    assert cores({}) == cores({VARIABLE: "0"}) == cores({VARIABLE: "x"}) == HERE
