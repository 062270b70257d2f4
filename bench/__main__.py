"""`python -m bench [module ...]`: measure, show, write `bench/out/results.json`; 1 if a mark is missed.

A run of all modules is kept as `bench/out/full.json` too, and
`--write-readme` copies its table into `bench/README.md`.
"""

import argparse
import importlib
import json
import pkgutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import bench
from bench import _machine
from bench.harness import Outcome, broken, measure, table

HERE: Final = Path(__file__).parent
OUT: Final = HERE / "out"
README: Final = HERE / "README.md"
BEGIN: Final = "<!-- results: written by `python -m bench --write-readme` -->"
END: Final = "<!-- end of results -->"


def main(argv: Sequence[str] | None = None) -> int:
    known = module_names()
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, and compare with the marks.")
    parser.add_argument("modules", nargs="*", metavar="module", help=f"all of them unless named: {', '.join(known)}")
    parser.add_argument("--list", action="store_true", help="list the modules and stop")
    parser.add_argument("--write-readme", action="store_true", help="put the last full run into bench/README.md")
    options = parser.parse_args(argv)
    if options.list:
        print("\n".join(known))
        return 0
    if options.write_readme:
        return write_readme(OUT / "full.json", README)
    unknown = [name for name in options.modules if name not in known]
    if unknown:
        parser.error(f"no such module: {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
    return run(options.modules or known, full=not options.modules, out=OUT)


def module_names() -> list[str]:
    """Every module under bench/ that holds cases; a name with an underscore in front is support."""
    names = [found.name for found in pkgutil.iter_modules(bench.__path__)]
    return sorted(name for name in names if name != "harness" and not name.startswith("_"))


def run(modules: Sequence[str], *, full: bool, out: Path) -> int:
    """Measure these modules. Results are written after each case, so that a crash loses only its own."""
    if not modules:
        print("bench: there is no module with cases", file=sys.stderr)
        return 1
    started = _machine.describe()
    if any(module.startswith("kafka_") for module in modules):
        print("touching free memory once, so that nobody pays for it", file=sys.stderr, flush=True)
        _machine.warm_memory(Path(tempfile.gettempdir()))
    outcomes: list[Outcome] = []
    for module in modules:
        for outcome in _measure_module(module):
            outcomes.append(outcome)
            _write(out / "results.json", outcomes, started, full=full, complete=False)
    _write(out / "results.json", outcomes, started, full=full, complete=True)
    if full:
        _write(out / "full.json", outcomes, started, full=True, complete=True)
    print(table(outcomes), end="")
    failed = [outcome for outcome in outcomes if outcome.failed]
    for outcome in failed:
        print(f"bench: {outcome.module}: {outcome.name}: {outcome.error or 'mark missed'}", file=sys.stderr)
    return 1 if failed else 0


def _measure_module(module: str) -> Iterator[Outcome]:
    try:
        cases = importlib.import_module(f"bench.{module}").cases()
    except Exception as error:
        yield broken(module, "cases()", error)
        return
    for case in cases:
        yield measure(module, case, progress=lambda text: print(f"{module}: {text}", file=sys.stderr, flush=True))


def _write(path: Path, outcomes: Sequence[Outcome], started: dict[str, object], *, full: bool, complete: bool) -> None:
    now = _machine.describe()
    document = {
        "full": full,
        "complete": complete,
        "machine": {**now, "date": started["date"], "load_average": started["load_average"]},
        "finished": {"date": now["date"], "load_average": now["load_average"]},
        "cases": [asdict(outcome) for outcome in outcomes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


def write_readme(results: Path, readme: Path) -> int:
    """Replace what stands between the markers by the table of `results`."""
    if not results.exists():
        print("bench: there is no full run yet: `python -m bench` makes one", file=sys.stderr)
        return 1
    document = json.loads(results.read_text(encoding="utf-8"))
    text = readme.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        print(f"bench: {readme} has lost its markers {BEGIN} and {END}", file=sys.stderr)
        return 1
    machine = document["machine"]
    load = ", ".join(f"{value:.1f}" for value in machine["load_average"])
    where = (
        f"{machine['date'][:10]}, {machine['cpu']}, {machine['cores_usable']} cores, "
        f"kernel {machine['kernel']}, Python {machine['python']}, load before {load}."
    )
    rows = table([Outcome(**case) for case in document["cases"]])
    readme.write_text(f"{head}{BEGIN}\n\n{where}\n\n{rows}\n{END}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
