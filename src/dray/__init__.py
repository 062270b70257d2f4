"""Dray: streams, heaps and tables whose only durable state is an object store and a log of commands."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dray.pipeline.tabular import read

__all__ = ["__version__", "read"]
__version__ = "0.1.0"
_LATE: Final = {"read": "dray.pipeline.tabular"}
"""What is loaded when it is asked for: a broker needs nothing of it."""


def __getattr__(name: str) -> object:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
