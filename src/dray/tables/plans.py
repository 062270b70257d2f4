"""What a broker and the process that plans for it tell each other; see `dray.pipeline.planner`."""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from dray.access.errors import Forbidden, Unauthenticated
from dray.errors import Conflict, Corrupt, DrayError, Invalid, Lost, NotFound, Unavailable, Unknown
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


KINDS: Final[Mapping[str, type[DrayError]]] = {
    one.kind.name: one
    for one in (Invalid, NotFound, Conflict, Lost, Unauthenticated, Forbidden, Unavailable, Unknown, Corrupt)
}
"""What stands for an error that another process told, by the name of its kind."""
PlanAnswer: TypeAlias = PlanMade | PlanNotMade
