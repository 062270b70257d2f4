"""Configuration: the mechanism. Settings live in the `settings.py` of their package.

A package declares subclasses of `Section`; the process that is started names
the sections it has and calls `load`. Each value is the default, or comes from
the YAML file, or from `DRAY__SECTION__KEY`, or from a flag; the later of
these wins, and where a value came from is kept.

Invariants
    CF1  The value of a secret is in no message, listing or repr.
    CF2  A key that no section declares is refused, wherever it was given.
    CF3  The same file, environment and flags give the same settings; a flag
         goes over the environment, that over the file, that over the default.
"""

from dray.config.loader import Config, Entry, load
from dray.config.problems import BadConfig, Problem
from dray.config.quantities import Size, format_duration, parse_duration
from dray.config.section import Leaf, Secret, Section, leaves, schema
from dray.config.sources import Level, Origin, Override, parse_set

__all__ = [
    "BadConfig",
    "Config",
    "Entry",
    "Leaf",
    "Level",
    "Origin",
    "Override",
    "Problem",
    "Secret",
    "Section",
    "Size",
    "format_duration",
    "leaves",
    "load",
    "parse_duration",
    "parse_set",
    "schema",
]
