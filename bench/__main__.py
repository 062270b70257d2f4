"""`python -m bench [module ...]`: measure, show, write `bench/out/results.json`; 1 if a mark is missed.

The last run of each module is kept as `bench/out/modules/NAME.json` too, and
`--write-readme` puts them together in `bench/README.md`; what was not measured
here stays there as it is. `--short` runs each case once, the large ones with a
fraction of their work, to see that they run; its figures mean little and are
kept apart, in `bench/out/short`. `--case TEXT` measures those cases of a module
whose names have the text in them, and puts them among its others.
"""

import argparse
import importlib
import json
import os
import pkgutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import bench
from bench import _machine
from bench.harness import RUNS, SHORT, Outcome, broken, measure, table

HERE: Final = Path(__file__).parent
OUT: Final = HERE / "out"
README: Final = HERE / "README.md"
BEGIN: Final = "<!-- results: written by `python -m bench --write-readme` -->"
END: Final = "<!-- end of results -->"
BROKERS: Final = "kafka_"
"""Modules that compare whole brokers: these write gigabytes."""


def main(argv: Sequence[str] | None = None) -> int:
    known = module_names()
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, and compare with the marks.")
    parser.add_argument("modules", nargs="*", metavar="module", help=f"all of them unless named: {', '.join(known)}")
    parser.add_argument("--list", action="store_true", help="list the modules and stop")
    parser.add_argument(
        "--write-readme", action="store_true", help="put the last run of every module into bench/README.md"
    )
    parser.add_argument("--short", action="store_true", help="one run of each case, with less work: for a try")
    parser.add_argument("--case", default="", metavar="TEXT", help="only the cases whose names have this in them")
    options = parser.parse_args(argv)
    if options.list:
        print("\n".join(known))
        return 0
    if options.write_readme:
        return write_readme(known, OUT, README)
    unknown = [name for name in options.modules if name not in known]
    if unknown:
        parser.error(f"no such module: {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
    if options.short:
        os.environ[SHORT] = "1"
    out, runs = (OUT / "short", 1) if options.short else (OUT, RUNS)
    return run(options.modules or known, out=out, runs=runs, case=options.case)


def module_names() -> list[str]:
    """Every module under bench/ that holds cases; a name with an underscore in front is support."""
    names = [found.name for found in pkgutil.iter_modules(bench.__path__)]
    return sorted(name for name in names if name != "harness" and not name.startswith("_"))


def run(modules: Sequence[str], *, out: Path, runs: int = RUNS, case: str = "") -> int:
    """Measure these modules. Results are written after each case, so that a crash loses only its own."""
    if not modules:
        print("bench: there is no module with cases", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        if any(module.startswith(BROKERS) for module in modules):
            print("filling the page cache, so that memory costs both sides the same", file=sys.stderr, flush=True)
            stack.enter_context(_machine.full_page_cache(Path(tempfile.gettempdir())))
        outcomes = _measure(modules, out, runs, case)
    if not outcomes:
        print(f"bench: no case has {case!r} in its name", file=sys.stderr)
        return 1
    print(table(outcomes), end="")
    failed = [outcome for outcome in outcomes if outcome.failed]
    for outcome in failed:
        print(f"bench: {outcome.module}: {outcome.name}: {outcome.error or 'mark missed'}", file=sys.stderr)
    return 1 if failed else 0


def _measure(modules: Sequence[str], out: Path, runs: int, text: str) -> list[Outcome]:
    begun = _machine.describe()
    outcomes: list[Outcome] = []
    for module in modules:
        started, own = _machine.describe(), []
        for outcome in _measure_module(module, runs, text):
            own.append(outcome)
            _write(out / "results.json", outcomes + own, begun, complete=False)
        outcomes += own
        if own:
            kept = among(_last_run(out, module), own) if text else own
            _write(out / "modules" / f"{module}.json", kept, started, complete=True)
    _write(out / "results.json", outcomes, begun, complete=True)
    return outcomes


def _measure_module(module: str, runs: int, text: str) -> Iterator[Outcome]:
    try:
        cases = importlib.import_module(f"bench.{module}").cases()
    except Exception as error:
        yield broken(module, "cases()", error)
        return
    for case in cases:
        if text not in case.name:
            continue
        yield measure(module, case, lambda text: print(f"{module}: {text}", file=sys.stderr, flush=True), runs)


def among(document: Any, measured: Sequence[Outcome]) -> list[Outcome]:  # type: ignore[explicit-any]  # JSON
    """The cases of a module's last run, those that were measured now in their places or at the end."""
    fresh = {outcome.name: outcome for outcome in measured}
    before = [] if document is None else [Outcome(**case) for case in document["cases"]]
    kept = [fresh.pop(outcome.name, outcome) for outcome in before]
    return [*kept, *fresh.values()]


def _write(path: Path, outcomes: Sequence[Outcome], started: dict[str, object], *, complete: bool) -> None:
    now = _machine.describe()
    document = {
        "complete": complete,
        "machine": {**now, "date": started["date"], "load_average": started["load_average"]},
        "finished": {"date": now["date"], "load_average": now["load_average"]},
        "cases": [asdict(outcome) for outcome in outcomes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


def write_readme(modules: Sequence[str], out: Path, readme: Path) -> int:
    """Replace what stands between the markers by the last results of every module.

    A module that was not measured here keeps its rows: they say when and where it was. One that nobody measured has
    none, and is told.
    """
    head, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    old, end, tail = rest.partition(END)
    if not begin or not end:
        print(f"bench: {readme} has lost its markers {BEGIN} and {END}", file=sys.stderr)
        return 1
    documents = {module: _last_run(out, module) for module in modules}
    rows, runs, missing = table([]).splitlines(), list[str](), list[str]()
    for module, document in documents.items():
        if document is not None:
            rows += table([Outcome(**case) for case in document["cases"]]).splitlines()[2:]
            runs.append(f"- {module}: {_conditions(document)}")
            continue
        kept = [line for line in old.splitlines() if line.startswith(f"| {module}: ")]
        rows += kept
        runs += [line for line in old.splitlines() if line.startswith(f"- {module}: ")]
        missing += [] if kept else [module]
    used = _libraries(old, [document for document in documents.values() if document is not None])
    text = "\n".join([head + BEGIN, "", *rows, "", *runs, "", f"Libraries: {used}.", "", END + tail])
    readme.write_text(text, encoding="utf-8")
    if missing:
        print(f"bench: not measured yet: `python -m bench {' '.join(missing)}`", file=sys.stderr)
        return 1
    return 0


def _last_run(out: Path, module: str) -> Any:  # type: ignore[explicit-any]  # JSON
    path = out / "modules" / f"{module}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _libraries(old: str, documents: Sequence[Any]) -> str:  # type: ignore[explicit-any]  # JSON
    before = next((line for line in old.splitlines() if line.startswith("Libraries: ")), "")
    named = (one.rpartition(" ") for one in before.removeprefix("Libraries: ").removesuffix(".").split(", "))
    versions = {name: version for name, _, version in named if name}
    for document in documents:
        versions.update(document["machine"]["libraries"])
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _conditions(document: Any) -> str:  # type: ignore[explicit-any]  # JSON
    machine = document["machine"]
    return (
        f"{machine['date'][:16]}, commit {machine['commit'][:8]}, {machine['cpu']}, {machine['cores_usable']} cores, "
        f"kernel {machine['kernel']}, Python {machine['python']}, load before {machine['load_average'][0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
