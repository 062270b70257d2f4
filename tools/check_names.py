"""Lists every metric, log event and setting, and refuses bad names: `python -m tools.check_names [--list]`.

Each package names its own metrics and events in its `telemetry.py` and its
settings in its `settings.py`. This imports them all, so that two packages
that chose the same name meet here and not in production.
"""

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from dray import telemetry
from dray.config import Section, leaves

METRIC: Final = re.compile(r"dray_[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
EVENT: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
KEY: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+")
BASE_UNITS: Final = ("_seconds", "_bytes")
COUNTS: Final = ("_per_entry",)
"""How many of a thing: what a histogram may end in besides."""
OTHER_UNITS: Final = re.compile(
    r"_(?:ms|millis|milliseconds|us|micros|microseconds|ns|minutes|hours|kb|kib|mb|mib|gb|gib|kilobytes|megabytes|percent)"
    r"(?:_total)?$"
)
DECLARES: Final = re.compile(
    r"\btelemetry\.(?:counter|gauge|alias|histogram|event)\("
    r"|from dray\.telemetry import .*\b(?:counter|gauge|alias|histogram|event)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name that operators see."""

    kind: str
    """counter, gauge, histogram, event or setting"""
    name: str
    package: str
    description: str


def judge(name: Name) -> Iterator[str]:
    """What is wrong with one name."""
    place = f"{name.package}: {name.kind} {name.name}"
    if not name.description.strip():
        yield f"{place}: no description"
    match name.kind:
        case "event":
            if not EVENT.fullmatch(name.name):
                yield f"{place}: expected package.what_happened"
            elif name.name.partition(".")[0] not in name.package.split("."):
                yield f"{place}: expected the name of its package in front"
        case "setting":
            if not KEY.fullmatch(name.name):
                yield f"{place}: expected lowercase words"
            if OTHER_UNITS.search(name.name):
                yield f"{place}: a duration or a size carries its unit in the value, not in the name"
        case _:
            yield from _judge_metric(name, place)


def _judge_metric(name: Name, place: str) -> Iterator[str]:
    if not METRIC.fullmatch(name.name):
        yield f"{place}: expected dray_ and lowercase words"
    if OTHER_UNITS.search(name.name):
        yield f"{place}: expected base units, {' or '.join(BASE_UNITS)}"
    if (name.kind == "counter") != name.name.endswith("_total"):
        yield f"{place}: a counter, and only a counter, ends in _total"
    if name.kind == "histogram" and not name.name.endswith(BASE_UNITS + COUNTS):
        yield f"{place}: a histogram ends in {' or '.join(BASE_UNITS + COUNTS)}"


def doubles(names: Sequence[Name]) -> Iterator[str]:
    """Names that stand for two things."""
    owners: dict[str, Name] = {}
    for name in names:
        before = owners.setdefault(name.name, name)
        if before is not name:
            yield f"{name.package}: {name.kind} {name.name} is taken by {before.package}"


def collect(package: str) -> tuple[list[Name], list[str]]:
    """Every name below a package, and what went wrong on the way."""
    root = importlib.import_module(package)
    names: list[Name] = []
    problems: list[str] = []
    # These come first: who declares a name is told by what its import adds, and walking imports packages too.
    for module in _telemetry_modules(root):
        try:
            added = list(_declared_by(module))
        except (ValueError, ImportError) as error:
            problems.append(f"{module}: {error}")
            continue
        if not added:
            problems.append(f"{module}: declares nothing, or was imported by another telemetry module")
        names.extend(added)
    walked = pkgutil.walk_packages(
        root.__path__, f"{package}.", onerror=lambda name: problems.append(f"{name}: cannot be imported")
    )
    found = [module.name for module in walked]
    settings = [module for module in found if module.endswith(".settings")]
    sections = _sections(package)
    problems.extend(_unregistered(settings, sections))
    for leaf in leaves(sections).values():
        owner = sections[leaf.key.partition(".")[0]].__module__.rpartition(".")[0]
        names.append(Name(kind="setting", name=leaf.key, package=owner, description=leaf.description))
    problems.extend(_declared_elsewhere(root))
    return names, problems


def _telemetry_modules(root: ModuleType) -> list[str]:
    directory = Path(next(iter(root.__path__)))
    paths = (path.relative_to(directory).with_suffix("") for path in directory.rglob("telemetry.py"))
    found = sorted(".".join((root.__name__, *path.parts)) for path in paths)
    return [module for module in found if module != telemetry.__name__]


def _declared_by(module: str) -> Iterator[Name]:
    events, metrics = telemetry.declared()
    importlib.import_module(module)
    owner = module.rpartition(".")[0]
    now_events, now_metrics = telemetry.declared()
    for name in now_events.keys() - events.keys():
        yield Name(kind="event", name=name, package=owner, description=now_events[name])
    for name in now_metrics.keys() - metrics.keys():
        metric = now_metrics[name]
        if not metric.alias:
            yield Name(kind=metric.kind, name=name, package=owner, description=metric.description)


def _sections(package: str) -> Mapping[str, type[Section]]:
    sections: Mapping[str, type[Section]] = importlib.import_module(f"{package}.cli.settings").SECTIONS
    return sections


def _unregistered(modules: Sequence[str], sections: Mapping[str, type[Section]]) -> Iterator[str]:
    used = set(sections.values())
    for section in sections.values():
        used.update(_nested(section))
    for module in modules:
        for value in vars(importlib.import_module(module)).values():
            own = isinstance(value, type) and issubclass(value, Section) and value.__module__ == module
            if own and value not in used:
                yield f"{module}: {value.__name__} is in no configuration: add it to SECTIONS of the command line"


def _nested(section: type[Section]) -> Iterator[type[Section]]:
    for field in section.model_fields.values():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield kind
            yield from _nested(kind)


def _declared_elsewhere(root: ModuleType) -> Iterator[str]:
    """Names that are declared outside a `telemetry.py`, where this check would not see them."""
    for directory in root.__path__:
        for path in sorted(Path(directory).rglob("*.py")):
            if path.name != "telemetry.py" and DECLARES.search(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(directory)}: declare the name in the telemetry.py of the package"


def main() -> int:
    parser = argparse.ArgumentParser(prog="check_names", description="Names of metrics, log events and settings.")
    parser.add_argument("--list", action="store_true", help="print every name")
    parser.add_argument("--package", default="dray", help="the package to look through")
    options = parser.parse_args()
    names, problems = collect(options.package)
    problems.extend(doubles(names))
    for name in names:
        problems.extend(judge(name))
    if options.list:
        for name in sorted(names, key=lambda name: (name.kind, name.name)):
            print(f"{name.kind}\t{name.name}\t{name.package}\t{' '.join(name.description.split())}")
    for problem in problems:
        print(problem, file=sys.stderr)
    kinds = ("counter", "gauge", "histogram", "event", "setting")
    counts = ", ".join(f"{sum(name.kind == kind for name in names)} {kind}s" for kind in kinds)
    print(f"names: {counts}; {len(problems)} problems", file=sys.stderr if options.list else sys.stdout)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
