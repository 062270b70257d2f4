"""Small Java programs on Kafka's own client; compiled once, by the hash of their source."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.peers.kafka import JDK, VERSION, jars, java_command
from tools.peers.process import cached, run, tool


def java_program(
    source: Path,
    *arguments: str,
    properties: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    seconds: float = 120.0,
) -> bytes:
    """Run the class that `source` is named after to its end and return what it wrote.

    `properties` follow the arguments as `key=value`: settings of the client, on top of its defaults.
    """
    settings = [f"{key}={value}" for key, value in (properties or {}).items()]
    return run([*command_of(source), *arguments, *settings], stdin=stdin, seconds=seconds)


def command_of(source: Path, heap: str = "256m", libraries: Sequence[Path] = ()) -> list[str]:
    """How to run the class that `source` is named after; its arguments follow.

    `libraries` are directories of jars that it needs beside Kafka's.
    """
    command = java_command(f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    path = ":".join(f"{directory}/*" for directory in (jars(), *libraries))
    return [*command[:-1], f"{_compiled(source, path)}:{path}", source.stem]


def _compiled(source: Path, path: str) -> Path:
    text = source.read_bytes()
    digest = hashlib.sha256(VERSION.encode() + text).hexdigest()[:16]

    def compile_into(directory: Path) -> None:
        run([tool("javac", JDK), "-Xlint:all,-processing", "-Werror", "-cp", path, "-d", directory, source])

    return cached(f"java-{source.stem}-{digest}", compile_into)
