"""Turns the declared settings into docs/configuration.md.

python -m tools.generate_configuration            write the page
python -m tools.generate_configuration --check    fail if the page is not current
"""

import inspect
import sys
from collections.abc import Iterator
from typing import Final

import yaml

from dray.cli.settings import SECTIONS
from dray.config import Entry, Leaf, Section, leaves, load
from dray.config.sources import env_name
from tools.pages import cell, main_of

HEAD: Final = """# Settings

Made by tools/generate_configuration.py from the `settings.py` of each package; do not edit.

A setting has its default, or the value of the file (`drayd broker --config FILE`, YAML), or of the environment, or of
a flag (`--set section.key=value`); the later of these wins. `drayd config show --origin` tells what is in force and
where it came from, `drayd config check` what is wrong, `drayd config schema` prints a JSON Schema for editors. A name
that no section has is refused.

Durations have a unit (`250ms`, `30s`, `5m`, `1h`, `7d`), sizes may (`64MiB`, `4MB`, or a number of bytes). A secret is
never shown, and `KEY_file` names a file that holds it. `drayd dev` has defaults of its own: `drayd dev -h`.
"""


def page() -> str:
    entries = {entry.key: entry for entry in load(SECTIONS, environ={}).entries()}
    parts = [HEAD]
    for name, section in SECTIONS.items():
        rows = "".join(_row(leaf, entries[leaf.key]) for leaf in leaves({name: section}).values())
        parts.append(f"\n## {name}\n\n{_about(section)}\n\n{_COLUMNS}{rows}")
    return "".join(parts)


_COLUMNS: Final = "| setting | environment | default | meaning |\n| --- | --- | --- | --- |\n"


def _about(section: type[Section]) -> str:
    return " ".join(inspect.cleandoc(section.__doc__ or "").split())


def _row(leaf: Leaf, entry: Entry) -> str:
    meaning = " ".join(_meaning(leaf))
    return f"| `{leaf.key}` | `{env_name(leaf.key)}` | {_default(entry)} | {cell(meaning)} |\n"


def _meaning(leaf: Leaf) -> Iterator[str]:
    yield leaf.description
    if leaf.secret:
        yield "A secret."


def _default(entry: Entry) -> str:
    if entry.value is None:
        return "not set"
    text: str = yaml.safe_dump(entry.value, default_flow_style=True, width=1 << 30)
    return f"`{cell(text.removesuffix('...' + chr(10)))}`"


if __name__ == "__main__":
    sys.exit(main_of("generate_configuration", "configuration.md", page))
