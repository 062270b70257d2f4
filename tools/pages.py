"""Pages of the documentation that are made from the code: written, or checked to be current."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"


def main_of(tool: str, name: str, make: Callable[[], str]) -> int:
    """The command line of a tool that makes `docs/<name>`; its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.{tool}", description=f"Write docs/{name} from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not current")
    page = DOCS / name
    text = make()
    if not parser.parse_args().check:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"not current: docs/{name}; run python -m tools.{tool}", file=sys.stderr)
    return 1


def put_section(page: Path, name: str, text: str) -> None:
    """Write a text between the marks of a section, in the place of what is there."""
    begin, end = (f"<!-- {side}: {name} -->" for side in ("begin", "end"))
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page.name} has no place for {name}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def section_of(page: Path, name: str) -> str:
    """What stands between the marks of a section."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- begin: {name} -->\n")
    return rest.partition(f"\n<!-- end: {name} -->")[0]


def cell(text: str) -> str:
    """A text in a cell of a table: on one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")
