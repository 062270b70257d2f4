"""A session of a Spark Connect server: Spark runs there, and here is only its client.

The server's Python needs this package, and its settings are its own: a client
can not name the daemon of its workers (`spark.python.daemon.module`).
"""

import socket
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from dray.errors import Invalid, Unavailable

SCHEME: Final = "sc://"
PORT: Final = 15002
ANSWER_S: Final = 10.0


class BadServerAddress(Invalid):
    """An address of no Spark Connect server."""

    advice = "give it as sc://HOST:PORT"


class NoClient(Invalid):
    """What a client of Spark Connect is made of is not installed."""

    advice = "pip install 'pyspark[connect]==4.1.4'"


class NoServer(Unavailable):
    """Nobody listens at the address of a Spark Connect server."""


def connect_session(address: str) -> SparkSession:
    """A session of the server at `sc://HOST:PORT`; from then on pyspark's functions are those of a client.

    Raises:
        BadServerAddress, NoClient: it can not be reached from here, and what to do about it.
        NoServer: it is not there now. Its client would wait for minutes.
    """
    host, port = _place(address)
    try:
        socket.create_connection((host, port), timeout=ANSWER_S).close()
    except OSError as error:
        raise NoServer("no Spark Connect server answers", address=f"{host}:{port}", reason=error) from error
    try:
        return SparkSession.builder.remote(address).getOrCreate()
    except ImportError as error:
        raise NoClient("the client of Spark Connect cannot be loaded", reason=error) from error


def _place(address: str) -> tuple[str, int]:
    try:
        found = urlsplit(address)
        host, port = found.hostname, found.port
    except ValueError as error:
        raise BadServerAddress("this is no address of a Spark Connect server", reason=error) from error
    if not host or not address.startswith(SCHEME):
        raise BadServerAddress("this is no address of a Spark Connect server")
    return host, PORT if port is None else port
