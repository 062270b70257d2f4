"""Makes `docs/invariants.md` from code and tests, and holds them together: `python -m tools.check_invariants`.

A module states its invariants in its docstring, below a line `Invariants`:

    XX1  What always holds.

A test names the ids that it proves in its docstring. An invariant that no test
names, one that two modules state, an id that code mentions and no module
states, and a page that is not what they give: each is a finding. `--write`
writes the page.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = "docs/invariants.md"
IDENTITY: Final = r"[A-Z]{1,4}[0-9]{1,3}"
NOT_IDS: Final = frozenset({"S3", "CRC32"})
MOST_TESTS: Final = 3
_HEAD: Final = """# Invariants

What always holds, who keeps it, and which tests prove it. Made by `python -m tools.check_invariants --write` from the
docstrings of modules and tests; `make check` fails if it is not up to date, or if an invariant has no test.

| id | invariant | keeper | tests |
| --- | --- | --- | --- |
"""

_STATED: Final = re.compile(rf"^    ({IDENTITY})  (\S.*)")
_LIST: Final = rf"{IDENTITY}(?:, {IDENTITY})*"
# How code mentions an invariant: `(XX1)`, `(XX1, XX2)`, `# XX1`, `# Invariant XX1`.
_MENTIONED: Final = re.compile(rf"\(({_LIST})\)|#\s(?:Invariant\s)?({_LIST})(?=$|[:;.\s])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An invariant where a module states it."""

    identity: str
    text: str
    path: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


def check(root: Path) -> list[str]:
    """Everything that is wrong below `root`, in words."""
    statements, findings = _statements(root)
    tests = _tests(root)
    for identity, statement in statements.items():
        if identity not in tests:
            findings.append(f"{statement.place}: {identity} is named by no test: prove it, and name it in a docstring")
    findings.extend(_stray_mentions(root, statements))
    page = root / PAGE
    if not findings and (not page.is_file() or page.read_text(encoding="utf-8") != render(root)):
        findings.append(f"{PAGE}: not what modules and tests give: run python -m tools.check_invariants --write")
    return findings


def render(root: Path) -> str:
    """The page."""
    statements, _ = _statements(root)
    tests = _tests(root)
    rows = []
    for identity in sorted(statements, key=_in_order):
        statement, named = statements[identity], sorted(tests.get(identity, ()))
        shown = ", ".join(named[:MOST_TESTS]) + (f" and {len(named) - MOST_TESTS} more" if named[MOST_TESTS:] else "")
        rows.append(f"| {identity} | {statement.text} | {statement.path} | {shown} |\n")
    return _HEAD + "".join(rows)


def stated(root: Path, path: Path) -> Iterator[Statement]:
    """The invariants in the docstring of one module."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    docstring = ast.get_docstring(tree, clean=False)
    if docstring is None:
        return
    inside, identity, words, begun = False, "", list[str](), 0
    name = path.relative_to(root).as_posix()
    for number, line in enumerate([*docstring.splitlines(), "end"], start=tree.body[0].lineno):
        top = bool(line.strip()) and not line.startswith(" ")
        match = _STATED.match(line) if inside else None
        if identity and (top or match or not line.strip()):
            yield Statement(identity=identity, text=_cell(words), path=name, line=begun)
            identity = ""
        if top:
            inside = line.rstrip() == "Invariants"
        if match:
            identity, words, begun = match[1], [match[2]], number
        elif identity:
            words.append(line.strip())


def _statements(root: Path) -> tuple[dict[str, Statement], list[str]]:
    found: dict[str, Statement] = {}
    findings = []
    for path in _sources(root):
        for statement in stated(root, path):
            before = found.setdefault(statement.identity, statement)
            if before is not statement:
                findings.append(f"{statement.place}: {statement.identity} is taken by {before.place}: choose another")
    return found, findings


def _tests(root: Path) -> dict[str, set[str]]:
    """The tests that name each id in their docstrings."""
    named: dict[str, set[str]] = {}
    for path in sorted((root / "tests").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for identity in re.findall(rf"\b{IDENTITY}\b", ast.get_docstring(node) or ""):
                named.setdefault(identity, set()).add(f"{name}::{node.name}")
    return named


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


def _in_order(identity: str) -> tuple[str, int]:
    prefix = identity.rstrip("0123456789")
    return prefix, int(identity[len(prefix) :])


def _cell(words: Sequence[str]) -> str:
    return " ".join(words).rstrip(".").replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    root = Path(__file__).resolve().parent.parent
    if "--write" in arguments:
        (root / PAGE).write_text(render(root), encoding="utf-8")
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"invariants: {len(findings)} findings" if findings else "invariants: each has its keeper and its tests")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
