"""`python -m dray.testing.history FILE.jsonl`: check a history and print the report.

Exit status: 0 valid, 1 invalid, 2 unknown or unreadable.
"""

import argparse
import sys
from pathlib import Path

from dray.errors import DrayError
from dray.testing.history.checker import check
from dray.testing.history.journal import read_events
from dray.testing.history.limits import SECOND_NS, Limits
from dray.testing.history.report import Verdict, as_json, as_text, judge, make_report
from dray.testing.history.timeline import fold_history


def main(arguments: list[str] | None = None) -> int:
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="python -m dray.testing.history", description="Check a client history.")
    parser.add_argument("file", type=Path, help="a history, one event per line")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--stale-read-s", type=float, default=defaults.stale_read_ns / SECOND_NS)
    parser.add_argument("--progress-s", type=float, default=defaults.progress_ns / SECOND_NS)
    parser.add_argument(
        "--no-retention", action="store_true", help="nothing may leave the log: a start that moves is loss"
    )
    chosen = parser.parse_args(arguments)
    limits = Limits(
        stale_read_ns=int(chosen.stale_read_s * SECOND_NS),
        progress_ns=int(chosen.progress_s * SECOND_NS),
        retention=not chosen.no_retention,
    )
    try:
        events, cut = read_events(chosen.file)
        judgement = check(fold_history(events, cut=cut), limits)
    except (DrayError, OSError) as problem:
        print(f"verdict: unknown\n  the history cannot be read: {problem}", file=sys.stderr)
        return Verdict.UNKNOWN.exit_code
    report = make_report(judgement)
    if chosen.json:
        sys.stdout.buffer.write(as_json(report))
    else:
        sys.stdout.write(as_text(report))
    return judge(judgement)[0].exit_code


if __name__ == "__main__":
    sys.exit(main())
