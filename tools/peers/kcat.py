"""kcat, the command line client on an old librdkafka; from the system's packages."""

from tools.peers.process import run, tool


def kcat(address: str, *arguments: str, stdin: bytes = b"", seconds: float = 60.0) -> bytes:
    """Run kcat against a broker to its end and return what it wrote."""
    return run([tool("kcat", "kcat"), "-b", address, *arguments], stdin=stdin, seconds=seconds)
