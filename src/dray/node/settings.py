"""Settings of a broker process as a whole."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from dray.config import Section, Size


class BrokerSettings(Section):
    """Who this broker is, and where it keeps what it must not lose."""

    data: Path = Path("dray-data")
    """The data directory: log, checkpoints, and, unless `objects.url` says otherwise, the records."""

    disk_reserve: Size = Size("64MiB")
    """With less room than this on a disk that it writes to, a broker is not ready, and `drayd doctor` fails."""

    id: int = Field(default=-1, ge=-1, le=(1 << 31) - 1)
    """The broker id that clients see. -1: one is given by the cluster and kept."""

    zone: str = Field(default="", max_length=75, pattern=r"^[A-Za-z0-9._:/-]*$")
    """The zone of this broker. A client that names it in its client id, as in `zone_id=a`, is told of the brokers of
    that zone alone. It is part of the names of the objects that this broker writes."""

    rack: str = Field(default="", max_length=100)
    """The rack that clients are told. Empty: the zone."""

    accept_clock: bool = False
    """Believe this machine's clock although it is far ahead of the log's time. For one start, after you looked."""


class ClusterSettings(Section):
    """What a cluster is born with, and how much of it each broker has in memory."""

    domains: int = Field(default=1, ge=1, le=256)
    """Data domains: parts of the metadata, each with a log of its own, that different brokers lead. It is read once,
    when the log is begun. More of them spread over more brokers, and cost objects: every domain writes its own. 4 in
    `drayd dev --brokers N`."""

    loaded_domains: int = Field(default=0, ge=0, le=256)
    """So many data domains a broker has loaded, besides those that it leads and those in use; the longest unused goes
    first. Less takes less memory, and more time for who asks a broker that does not lead. 0: all are loaded, always.
    Set the same on every broker. A broker that keeps the log itself has all of it."""

    idle: timedelta = Field(default=timedelta(minutes=1), gt=timedelta(0))
    """With `cluster.loaded_domains`: a domain that a broker does not lead goes when nobody used it for this long."""

    load_wait: timedelta = Field(default=timedelta(seconds=5), gt=timedelta(0))
    """How long a request waits for a domain that has to be loaded, before it is told to try again."""


class TopicSettings(Section):
    """What topics are like when nobody says otherwise."""

    auto_create: bool = False
    """Make a topic when a client asks for one that does not exist. On in `drayd dev`."""

    partitions: int = Field(default=1, ge=1, le=3_000)
    """Partitions of a topic about which nothing was said."""
