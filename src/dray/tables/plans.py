"""What a broker and the process that plans for it tell each other; see `dray.pipeline.planner`."""

from typing import TypeAlias

import msgspec

from dray.tables.options import Store


class PlanOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be planned."""

    data: str
    """The data directory."""
    log: str | None = None
    """The log, if it is one that brokers of several machines share; then the directory keeps nothing of it."""
    store: Store
    options: dict[str, str]
    """Those of `spark.read.format("dray")`, but for where."""
    parallel: int
    shared: bool


class PlanMade(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Behind it follow so many bytes."""

    size: int
    pin: str | None


class PlanNotMade(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Why there is none."""

    error: str
    kind: str
    message: str


PlanAnswer: TypeAlias = PlanMade | PlanNotMade
