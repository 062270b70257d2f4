"""kaskade, a console for a terminal, from PyPI; with pyte, which draws what a terminal would show."""

import sys
from pathlib import Path
from typing import Final

from tools.peers.process import cached, run

KASKADE: Final = "kaskade==5.1.0"
PYTE: Final = "pyte==0.8.2"
_SHOW: Final = Path(__file__).with_name("screen.py")


def screen_of(address: str, until: str, seconds: float = 120.0) -> str:
    """What its list of topics shows of a cluster, once a line of it matches `until`; or after so long."""

    def install(directory: Path) -> None:
        uv = Path(sys.executable).with_name("uv")
        run([uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", directory, KASKADE, PYTE])

    home = cached(f"{KASKADE.replace('==', '-')}-py{sys.version_info[0]}{sys.version_info[1]}", install)
    program = [sys.executable, "-c", "from kaskade.main import cli; cli()", "admin", "-b", address]
    environment = {"PYTHONPATH": str(home), "HOME": str(home), "TERM": "xterm-256color"}
    shown = run(
        [sys.executable, _SHOW, until, str(seconds), *program], environment=environment, seconds=seconds + 60.0
    )  # fmt: skip
    return shown.decode()
