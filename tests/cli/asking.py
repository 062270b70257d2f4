"""`dray`, called as its entry point calls it: in this process, with an input and an output of bytes."""

import contextlib
import io
import json
import sys
import tempfile
from typing import NamedTuple
from unittest.mock import patch

from dray.cli.main import DRAY, run


class Told(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """What `--format tsv` told."""
        return [line.split("\t") for line in self.out.decode().splitlines()]


def dray(*argv: object, stdin: bytes = b"") -> Told:
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
    with (
        tempfile.TemporaryFile() as file,
        io.TextIOWrapper(file) as source,
        patch.object(sys, "stdin", source),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        file.write(stdin)
        file.seek(0)
        code = run([str(argument) for argument in argv], DRAY)
    out.flush()
    return Told(code, out.buffer.getvalue(), err.getvalue())
