"""Holds the tree to its rules: `python -m tools.check_tree`.

Looks at every file that git tracks and refuses what review would: files that
are too long, names that say nothing, places of one machine, tests that wait
or are left out without a reason, and work that nobody owns.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

MOST_LINES: Final = 600
SOURCE: Final = frozenset({".py", ".pyi", ".c", ".h", ".ts", ".svelte"})
GENERATED: Final = ("src/dray/servers/kafka/messages/", "src/dray/api/v1/heaps_pb2.py")
EMPTY_NAMES: Final = frozenset({"utils", "util", "helpers", "helper", "common", "manager"})
OWN_PATTERNS: Final = "tools/check_tree.py"

REGISTRIES: Final = re.compile(
    r"pypi\.org|files\.pythonhosted\.org|registry\.npmjs|repo\d?\.maven|proxy\.golang|crates\.io", re.IGNORECASE
)
MACHINE_PATHS: Final = re.compile(r"(?<![\w.$}-])/(?:root|work)/")
WAITS: Final = re.compile(r"\btime\.sleep\(|\bfrom time import .*\bsleep\b")
LEFT_OUT: Final = re.compile(r"\bpytest\.(?:mark\.)?skip|\bimportorskip\b|\bxfail\b|\bunittest\.skip")
UNOWNED: Final = re.compile(r"\bTODO\b(?!\(#\d+\))|\bFIXME\b")
REASON: Final = re.compile(r"#\s*\w+.*\w|\breason=f?[\"'].*\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place that breaks a rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[PurePosixPath, Sequence[str]], Iterator[Finding]]


def too_long(path: PurePosixPath, lines: Sequence[str]) -> Iterator[Finding]:
    if path.suffix in SOURCE and len(lines) > MOST_LINES and not str(path).startswith(GENERATED):
        yield _at(path, MOST_LINES + 1, f"{len(lines)} lines, at most {MOST_LINES}: find the second idea and move it")


def empty_name(path: PurePosixPath, lines: Sequence[str]) -> Iterator[Finding]:
    if path.suffix not in SOURCE:
        return
    for part in (*path.parent.parts, path.stem):
        if part.lower() in EMPTY_NAMES:
            yield _at(path, 1, f"the name {part!r} says nothing: name what it holds")


def foreign_place(path: PurePosixPath, lines: Sequence[str]) -> Iterator[Finding]:
    yield from _matching(path, lines, REGISTRIES, "the host of a registry: leave it to the environment")
    yield from _matching(path, lines, MACHINE_PATHS, "a path of one machine: make it relative")


def waiting_test(path: PurePosixPath, lines: Sequence[str]) -> Iterator[Finding]:
    if path.parts[0] != "tests" or path.suffix != ".py":
        return
    for pattern, message in ((WAITS, "a test that sleeps"), (LEFT_OUT, "a test that is left out")):
        for found in _matching(
            path, lines, pattern, f"{message}: give the reason on this line, as a comment or reason="
        ):
            if not REASON.search(lines[found.line - 1]):
                yield found


def unmarked_peer(path: PurePosixPath, lines: Sequence[str]) -> Iterator[Finding]:
    """`make test` has only what comes from PyPI; what stands among the peers needs more."""
    if (
        path.parts[:2] == ("tests", "peers")
        and path.match("test_*.py")
        and not any("mark.peers" in line for line in lines)
    ):
        yield _at(path, 1, "a test of peers that says so nowhere: pytestmark = pytest.mark.peers")


def unowned_work(path: PurePosixPath, lines: Sequence[str]) -> Iterator[Finding]:
    yield from _matching(path, lines, UNOWNED, "work that nobody owns: do it, or write TODO(#number)")


RULES: Final[tuple[Rule, ...]] = (too_long, empty_name, foreign_place, waiting_test, unmarked_peer, unowned_work)


def check(root: Path) -> list[Finding]:
    """All findings in the files that git tracks below `root`."""
    findings: list[Finding] = []
    for name in _tracked(root):
        if name == OWN_PATTERNS:
            continue
        lines = _lines(root / name)
        for rule in RULES:
            findings.extend(rule(PurePosixPath(name), lines))
    return findings


def _tracked(root: Path) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout
    names = [name for name in listed.decode("utf-8").split("\0") if name]
    return [name for name in names if (root / name).is_file()]  # one that is removed and not yet staged is no finding


def _lines(path: Path) -> list[str]:
    """The lines of a text file; a binary one has none."""
    content = path.read_bytes()
    if b"\0" in content:
        return []
    return content.decode("utf-8", errors="replace").splitlines()


def _matching(path: PurePosixPath, lines: Sequence[str], pattern: re.Pattern[str], message: str) -> Iterator[Finding]:
    for number, line in enumerate(lines, start=1):
        if pattern.search(line):
            yield _at(path, number, message)


def _at(path: PurePosixPath, line: int, message: str) -> Finding:
    return Finding(path=str(path), line=line, message=message)


def main() -> int:
    findings = check(Path(__file__).resolve().parent.parent)
    for finding in findings:
        print(finding)
    print(f"tree: {len(findings)} findings" if findings else "tree: clean")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
