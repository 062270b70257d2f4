"""Logs, checkpoints and a directory that an earlier build wrote: recorded once, opened for ever."""

import gzip
import json
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

from dray.errors import NotFound

RECORDED = Path(__file__).parent / "recorded"
LOGS = ("v1-1-domain", "v1-4-domains")
_HEAD = struct.Struct("<QI")


def entries(name: str) -> Iterator[tuple[int, bytes]]:
    """Positions and entries of a recorded log."""
    raw = gzip.decompress((RECORDED / f"{name}.log.gz").read_bytes())
    at = 0
    while at < len(raw):
        position, size = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        yield position, raw[at : at + size]
        at += size


def marks(name: str) -> dict[int, tuple[str, str]]:
    """The digest and the fingerprint that the earlier build had at some positions."""
    told = json.loads((RECORDED / f"{name}.json").read_text())["marks"]
    return {mark["position"]: (mark["digest"], mark["fingerprint"]) for mark in told}


def last_checkpoint(name: str) -> bytes:
    """Of the recorded log's last position."""
    return gzip.decompress((RECORDED / f"{name}.checkpoint.gz").read_bytes())


def unpack_directory(target: Path) -> Path:
    """A data directory that a broker of version 1 left behind: 180 records in `orders`, one topic deleted."""
    with tarfile.open(RECORDED / "v1-directory.tar.gz") as archive:
        archive.extractall(target, filter="data")
    directory = target / "dray-data"
    if not directory.is_dir():
        raise NotFound("the recording has no directory")
    return directory
