"""Turns the declared metrics into docs/metrics.md.

python -m tools.generate_metrics            write the page
python -m tools.generate_metrics --check    fail if the page is not current
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

import dray
from dray import telemetry
from tools.pages import cell, main_of

HEAD: Final = """# Metrics

Made by tools/generate_metrics.py from the `telemetry.py` of each package; do not edit.

`/metrics` of a broker's HTTP address has them in the format of Prometheus. Times are in seconds and sizes in bytes;
what only grows ends in `_total`; a histogram has `_bucket`, `_sum` and `_count`. Beside them stand `process_*`, the
metrics that every program with a Prometheus client has. Names that begin with `kafka_` are those of kafka_exporter, so
that dashboards and alerts that people have go on working.
"""
_COLUMNS: Final = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n"


def page() -> str:
    parts = [HEAD]
    root = Path(dray.__file__).parent
    for file in sorted(root.rglob("telemetry.py")):
        module = ".".join(("dray", *file.relative_to(root).with_suffix("").parts))
        if module == telemetry.__name__:
            continue
        rows = list(_rows(module))
        if rows:
            name = module.removeprefix("dray.").removesuffix(".telemetry").replace(".", "/")
            parts.append(f"\n## {name}\n\n{_COLUMNS}{''.join(rows)}")
    return "".join(parts)


def _rows(module: str) -> Iterator[str]:
    """What a module declares, in its order."""
    for value in vars(importlib.import_module(module)).values():
        if not isinstance(value, Counter | Gauge | Histogram):
            continue
        [family] = value.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        metric = telemetry.declared()[1][name]
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{name}` | {metric.kind} | {labels} | {cell(metric.description)} |\n"


if __name__ == "__main__":
    sys.exit(main_of("generate_metrics", "metrics.md", page))
