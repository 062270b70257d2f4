"""How many tasks a session runs at a time, told to its planners.

A plan is made on the driver's machine, whose cores say nothing about the
cluster; and Spark tells a planner nothing of its session. So `build_session`
leaves the number in the environment that the JVM and its planners inherit. A
session of somebody else has none: there the cores of the driver count, and
`minPartitions` asks for more tasks.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "DRAY_SPARK_CORES"
_LOCAL: Final = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,.*)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")


def cores_of(master: str, settings: Mapping[str, str]) -> int | None:
    """The tasks that a session with these settings runs at a time; None if they do not say."""
    parallelism = _number(settings, "spark.default.parallelism")
    if parallelism is not None:
        return parallelism
    if found := _LOCAL.fullmatch(master):
        return _here() if found[1] == "*" else int(found[1] or 1)
    if found := _LOCAL_CLUSTER.fullmatch(master):
        return int(found[1]) * int(found[2])
    if most := _number(settings, "spark.cores.max"):
        return most
    executors = _number(settings, "spark.dynamicAllocation.maxExecutors") or _number(
        settings, "spark.executor.instances"
    )
    return None if executors is None else executors * (_number(settings, "spark.executor.cores") or 1)


def cores(environ: Mapping[str, str]) -> int:
    """In a planner: what its session told, else the cores of this machine."""
    return _number(environ, VARIABLE) or _here()


def _here() -> int:
    return os.cpu_count() or 1


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "").strip()
    return int(text) if re.fullmatch(r"[1-9]\d{0,6}", text) else None
