"""Holds tests and `docs/requirements.md` together: `python -m tools.check_requirements`.

Tests name the requirements that they prove by their ids (R-093, K-070, ...).
The page tells what each says, in one line: an id that a test names and the
page does not tell, or a line whose id no test names, is a finding. Those that
are set aside stand below, with what is done instead, and no test names them.
"""

import re
import sys
from pathlib import Path
from typing import Final

PAGE: Final = "docs/requirements.md"
_ID: Final = re.compile(r"\b[RKDWLE]-[0-9]{1,3}\b")
_ASIDE: Final = "## Set aside"
_ROW: Final = re.compile(r"^\| ([A-Z]-[0-9]+) \| (.*\S) \|$")


def check(root: Path) -> list[str]:
    """Everything that is wrong below `root`, in words."""
    page = root / PAGE
    if not page.is_file():
        return [f"{PAGE}: there is no such file"]
    told: dict[str, int] = {}
    aside: dict[str, int] = {}
    found, findings = told, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line == _ASIDE:
            found = aside
        row = _ROW.match(line)
        if row is None:
            continue
        before = told.get(row[1]) or aside.get(row[1])
        if before is not None:
            findings.append(f"{PAGE}:{number}: {row[1]} is told already, in line {before}")
        found[row[1]] = number
    named = _named(root)
    findings += [f"{named[one]}: {one} is set aside in {PAGE}" for one in sorted(named.keys() & aside.keys())]
    named = {one: place for one, place in named.items() if one not in aside}
    findings += [f"{named[one]}: {one} is not told in {PAGE}" for one in sorted(named.keys() - told.keys())]
    findings += [f"{PAGE}:{told[one]}: {one} is named by no test" for one in sorted(told.keys() - named.keys())]
    return findings


def _named(root: Path) -> dict[str, str]:
    """The ids that tests name, with one place of each."""
    found: dict[str, str] = {}
    for path in sorted((root / "tests").rglob("*.py")):
        if path.parent.name == "tools":
            continue  # they are about ids, and prove none
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for identity in _ID.findall(line):
                found.setdefault(identity, f"{path.relative_to(root).as_posix()}:{number}")
    return found


def main() -> int:
    findings = check(Path(__file__).resolve().parent.parent)
    for finding in findings:
        print(finding)
    print(f"requirements: {len(findings)} findings" if findings else "requirements: each that a test names is told")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
