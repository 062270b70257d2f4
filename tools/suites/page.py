"""What came of the suites, as sections of docs/compat.md."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tools.pages import DOCS, cell
from tools.suites.running import Outcome
from tools.suites.suite import PRETENDED, Suite

PAGE: Final = DOCS / "compat.md"
NO_REASON: Final = "NO REASON IS GIVEN"
_WIDEST: Final = 160


def section(suite: Suite, outcomes: Sequence[Outcome]) -> str:
    """What a suite found, each failure with its reason."""
    counts = Counter(one.verdict for one in outcomes)
    lines = [
        f"{len(outcomes)} tests of version {suite.version}, which was told that this is Kafka {PRETENDED}: "
        f"**{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped themselves**. "
        f"Left out: {suite.left_out}.",
    ]
    for why, tests in _failures(suite, outcomes).items():
        lines += ["", f"**{why}**", "", "| test | it says |", "| --- | --- |"]
        lines += [f"| `{cell(one.test)}` | {cell(one.said[:_WIDEST])} |" for one in tests]
    return "\n".join(lines)


def unexplained(suite: Suite, outcomes: Sequence[Outcome]) -> list[Outcome]:
    return _failures(suite, outcomes).get(NO_REASON, [])


def _failures(suite: Suite, outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for one in outcomes:
        if one.verdict == "failed":
            reason = next((reason for reason in suite.reasons if reason.fits(one.test)), None)
            found.setdefault(reason.why if reason else NO_REASON, []).append(one)
    return found
