"""Small programs on clients from npm; what they need is installed once, by name and version."""

import shutil
from pathlib import Path
from typing import Final

from tools.peers.process import cached, run, tool

KAFKAJS: Final = "kafkajs@2.2.4"


def node_command(source: Path, *packages: str) -> list[str]:
    """How to run a program that needs packages (kafkajs, if none is named); its arguments follow."""
    packages = packages or (KAFKAJS,)

    def install(directory: Path) -> None:
        npm = tool("npm", "npm")
        quiet = ["--silent", "--no-audit", "--no-fund", "--no-package-lock"]
        run([npm, "install", *quiet, "--prefix", directory, *packages], directory=directory)

    home = cached("node-" + "-".join(packages).replace("@", "-"), install)
    # Node looks for packages above the program itself.
    program = home / source.name
    if not program.exists() or program.read_bytes() != source.read_bytes():
        partial = program.with_suffix(f".{id(source)}.partial")
        shutil.copyfile(source, partial)
        partial.rename(program)
    return [tool("node", "nodejs"), str(program)]
