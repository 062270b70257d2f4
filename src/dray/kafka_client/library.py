"""The client library that moves records: librdkafka, as the package confluent-kafka (ADR-0068).

Who lists topics or groups does not need it, so it is an extra. What the
library logs is not shown: what matters of it comes as an error.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from dray.errors import Invalid
from dray.kafka_client.link import CLIENT_ID

NAME: Final = "confluent_kafka"
Options: TypeAlias = Mapping[str, str | int | bool]
"""Settings of the library, under its own names."""


class MissingLibrary(Invalid):
    """The extra is not installed."""

    advice = "pip install 'dray[cli]', or confluent-kafka itself"


@contextmanager
def library() -> Iterator[None]:
    """Around the import of what needs the library.

    Raises:
        MissingLibrary: it is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != NAME:
            raise
        raise MissingLibrary("records are moved by confluent-kafka, which is not installed") from error


def silent() -> logging.Logger:
    """Where the library's own log goes: nowhere."""
    logger = logging.getLogger("dray.kafka_client.library")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def settings(bootstrap: str) -> Options:
    """What readers and writers have in common."""
    return {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID}
