"""Small programs on clients written in Go; built once, by the hash of their source."""

import hashlib
import shutil
from pathlib import Path
from typing import Final

from tools.peers.process import cached, run, tool

FRANZ_GO: Final = "github.com/twmb/franz-go@v1.22.2"


def go_program(source: Path, module: str = FRANZ_GO) -> Path:
    """The program that a file makes, built if it is not there yet (a minute or so)."""
    digest = hashlib.sha256(module.encode() + source.read_bytes()).hexdigest()[:16]

    def build(directory: Path) -> None:
        go = tool("go", "golang-go")
        work = directory / "build"
        work.mkdir()
        shutil.copyfile(source, work / source.name)
        run([go, "mod", "init", source.stem], directory=work)
        run([go, "get", module], directory=work)
        run([go, "mod", "tidy"], directory=work)
        run([go, "build", "-o", directory / source.stem, "."], directory=work)
        shutil.rmtree(work)

    return cached(f"go-{source.stem}-{digest}", build) / source.stem
