"""Holds code, tests and `docs/invariants.md` together: `python -m tools.check_invariants`.

A module states its invariants in its docstring, below a line `Invariants`:

    XX1  What always holds.

Each has a row in `docs/invariants.md` with the file that keeps it and the
test that proves it. An invariant without a row, a row without an invariant, a
keeper or a test that is gone or does not mention the id: each is a finding.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TABLE: Final = "docs/invariants.md"
HEADER: Final = ["id", "invariant", "keeper", "test"]
IDENTITY: Final = r"[A-Z]{1,4}[0-9]{1,3}"
NOT_IDS: Final = frozenset({"S3", "CRC32"})

_STATED: Final = re.compile(rf"^    ({IDENTITY})  \S")
_LIST: Final = rf"{IDENTITY}(?:, {IDENTITY})*"
# How code mentions an invariant: `(XX1)`, `(XX1, XX2)`, `# XX1`, `# Invariant XX1`.
_MENTIONED: Final = re.compile(rf"\(({_LIST})\)|#\s(?:Invariant\s)?({_LIST})(?=$|[:;.\s])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An invariant where a module states it."""

    identity: str
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table."""

    identity: str
    keeper: str
    tests: tuple[str, ...]
    line: int


def check(root: Path) -> list[str]:
    """Everything that is wrong below `root`, in words."""
    statements = [statement for path in _sources(root) for statement in stated(root, path)]
    rows, findings = read_table(root / TABLE)
    by_identity: dict[str, Statement] = {}
    for statement in statements:
        before = by_identity.setdefault(statement.identity, statement)
        if before is not statement:
            findings.append(f"{_place(statement)}: {statement.identity} is taken by {_place(before)}: choose another")
    known_rows = {row.identity for row in rows}
    for identity, statement in by_identity.items():
        if identity not in known_rows:
            findings.append(f"{_place(statement)}: {identity} has no row in {TABLE}: name its keeper and its test")
    for row in rows:
        findings.extend(_judge(root, row, by_identity))
    findings.extend(_stray_mentions(root, by_identity))
    return findings


def stated(root: Path, path: Path) -> Iterator[Statement]:
    """The invariants in the docstring of one module."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    docstring = ast.get_docstring(tree, clean=False)
    if docstring is None:
        return
    inside = False
    for number, line in enumerate(docstring.splitlines(), start=tree.body[0].lineno):
        if line.strip() and not line.startswith(" "):
            inside = line.rstrip() == "Invariants"
        match = _STATED.match(line) if inside else None
        if match:
            yield Statement(identity=match[1], path=path.relative_to(root).as_posix(), line=number)


def read_table(path: Path) -> tuple[list[Row], list[str]]:
    """The rows of the table, and what is wrong with the table itself."""
    if not path.is_file():
        return [], [f"{TABLE}: there is no such file: begin it with | {' | '.join(HEADER)} |"]
    rows: list[Row] = []
    findings: list[str] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("|"):
            continue
        cells = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if cells == HEADER or set("".join(cells)) <= {"-", ":"}:
            continue
        if len(cells) != len(HEADER) or not all(cells) or not re.fullmatch(IDENTITY, cells[0]):
            findings.append(f"{TABLE}:{number}: expected | {' | '.join(HEADER)} |, all of them filled")
            continue
        if cells[0] in seen:
            findings.append(f"{TABLE}:{number}: {cells[0]} has a row already, in line {seen[cells[0]]}")
        seen[cells[0]] = number
        tests = tuple(test.strip().strip("`") for test in cells[3].split(","))
        rows.append(Row(identity=cells[0], keeper=cells[2], tests=tests, line=number))
    return rows, findings


def _judge(root: Path, row: Row, statements: Mapping[str, Statement]) -> Iterator[str]:
    place = f"{TABLE}:{row.line}: {row.identity}"
    if row.identity not in statements:
        yield f"{place} is stated by no module: state it, or take the row away"
    keeper = root / row.keeper
    if not keeper.is_file():
        yield f"{place}: the keeper {row.keeper} does not exist"
    elif not _mentions(keeper, row.identity):
        yield f"{place}: the keeper {row.keeper} does not mention it"
    for test in row.tests:
        yield from _judge_test(root, row, test, place)


def _judge_test(root: Path, row: Row, test: str, place: str) -> Iterator[str]:
    name, *steps = test.split("::")
    path = root / name
    if not steps:
        yield f"{place}: expected a test as path::name, got {test}"
    elif not path.is_file():
        yield f"{place}: the test file {name} does not exist"
    elif missing := [step for step in steps if not _defines(path, step)]:
        yield f"{place}: {name} has no {missing[0]}"
    elif not _mentions(path, row.identity):
        yield f"{place}: {name} does not mention it"


def _defines(path: Path, name: str) -> bool:
    pattern = rf"^\s*(?:async )?def {re.escape(name)}\b|^\s*class {re.escape(name)}\b|^{re.escape(name)}(?::.*)? = "
    return re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def _mentions(path: Path, identity: str) -> bool:
    return re.search(rf"\b{identity}\b", path.read_text(encoding="utf-8")) is not None


def _stray_mentions(root: Path, statements: Mapping[str, Statement]) -> Iterator[str]:
    """Ids that code mentions and no module states. Only prefixes that are in use count: `(V2)` is no id."""
    prefixes = {identity.rstrip("0123456789") for identity in statements}
    for path in _sources(root):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for identity in _mentioned(line):
                if identity.rstrip("0123456789") in prefixes and identity not in statements:
                    yield f"{path.relative_to(root).as_posix()}:{number}: {identity} is stated by no module"


def _mentioned(line: str) -> list[str]:
    found = [identity for match in _MENTIONED.finditer(line) for identity in (match[1] or match[2]).split(", ")]
    return [identity for identity in found if identity not in NOT_IDS]


def _sources(root: Path) -> Sequence[Path]:
    return sorted((root / "src").rglob("*.py"))


def _place(statement: Statement) -> str:
    return f"{statement.path}:{statement.line}"


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"invariants: {len(findings)} findings" if findings else "invariants: each has its keeper and its test")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
