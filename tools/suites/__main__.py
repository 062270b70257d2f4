"""Runs suites and writes the page."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools.pages import put_section
from tools.suites.page import PAGE, section, unexplained
from tools.suites.running import play
from tools.suites.suite import SUITES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.suites", description="Run the suites of other clients.")
    parser.add_argument("client", nargs="?", choices=[suite.client for suite in SUITES], help="only this one")
    parser.add_argument("checkout", nargs="?", type=Path, help="its repository, where its archive has no tests")
    parser.add_argument("-k", dest="only", default="", help="only tests with this in their name; nothing is written")
    options = parser.parse_args()
    left = 0
    for suite in SUITES:
        if options.client not in (None, suite.client):
            continue
        if not suite.in_archive and options.checkout is None:
            print(f"{suite.client}: its archive has no tests: give a checkout of its repository at {suite.version}")
            continue
        outcomes = play(suite, options.checkout, options.only)
        for one in unexplained(suite, outcomes):
            print(f"no reason is given: {one.test}: {one.said}")
            left += 1
        if not options.only:
            text = f"{section(suite, outcomes)}\n\nRun on {datetime.now(UTC):%Y-%m-%d}."
            put_section(PAGE, suite.client, text)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
