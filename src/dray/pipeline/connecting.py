"""A session of a Spark Connect server: Spark runs there, and here is only its client.

The server's Python needs this package, and its settings are its own: a client
can not name the daemon of its workers (`spark.python.daemon.module`).
"""

import socket
from typing import Final, cast
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from dray.errors import Invalid, Unavailable

SCHEME: Final = "sc://"
PORT: Final = 15002
ANSWER_S: Final = 10.0


class BadAddress(Invalid):
    """An address of no Spark Connect server."""

    advice = "give it as sc://HOST:PORT"


class NoClient(Invalid):
    """What a client of Spark Connect is made of is not installed."""

    advice = "pip install 'pyspark[connect]==4.1.4'"


class NoServer(Unavailable):
    """Nobody listens at the address of a Spark Connect server."""


def connect_session(address: str) -> SparkSession:
    """A new session of the server at `sc://HOST:PORT`.

    Raises:
        BadAddress, NoClient: it can not be reached from here, and what to do about it.
        NoServer: it is not there now. Its client would wait for minutes.
    """
    host, port = _place(address)
    try:
        socket.create_connection((host, port), timeout=ANSWER_S).close()
    except OSError as error:
        raise NoServer("no Spark Connect server answers", address=f"{host}:{port}", reason=error) from error
    try:
        from pyspark.sql.connect.session import SparkSession as Client
    except ImportError as error:
        raise NoClient("the client of Spark Connect cannot be loaded", reason=error) from error
    return cast("SparkSession", Client.builder.remote(address).create())


def _place(address: str) -> tuple[str, int]:
    try:
        found = urlsplit(address)
        host, port = found.hostname, found.port
    except ValueError as error:
        raise BadAddress("this is no address of a Spark Connect server", reason=error) from error
    if not host or not address.startswith(SCHEME):
        raise BadAddress("this is no address of a Spark Connect server")
    return host, PORT if port is None else port
