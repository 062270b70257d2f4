"""Chromium without a window, from the system's packages: what a person's browser makes of a page."""

from pathlib import Path
from typing import Final

from tools.peers.process import run, tool

PROGRAM: Final = "chromium-headless-shell"
_QUIET: Final = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions")


def page_as_seen(url: str, *, seconds: float = 120.0) -> str:
    """The document after the browser has loaded it."""
    return run([tool(PROGRAM, PROGRAM), *_QUIET, "--dump-dom", url], seconds=seconds).decode()


def picture_of(
    url: str, picture: Path, *, width: int = 1280, height: int = 900, dark: bool = False, seconds: float = 120.0
) -> str:
    """Save a picture of the page; returns what the browser complained about."""
    more = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
    shot = [f"--window-size={width},{height}", f"--screenshot={picture}", "--enable-logging=stderr", "--log-level=0"]
    both = ["sh", "-c", 'exec "$@" 2>&1', "sh"]  # the console of a page goes to standard error
    said = run([*both, tool(PROGRAM, PROGRAM), *_QUIET, *more, *shot, url], seconds=seconds).decode(errors="replace")
    return "\n".join(line for line in said.splitlines() if ":CONSOLE:" in line)
