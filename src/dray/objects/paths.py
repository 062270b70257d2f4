"""Names of objects: what a name may be, and the names that Dray gives.

    wal/v1/zone=<zone>/domain=<domain>/date=YYYY/MM/DD/<wal id in hex>.wo
    compaction/v1/topic=<topic id in hex>/partition=<partition>/domain=<domain>/date=YYYY/MM/DD/<id in hex>.parquet
    meta/v1/<log id in hex>/domain=<domain>/<position>-<hash in hex>.checkpoint

Names are relative to the cluster's prefix, which belongs to the store. The
day is in UTC and comes from the creation time. The zone is there for people
who look into the bucket; nothing may be decided by it.

Invariants
    O4  Builder and parser are inverse: each name has one meaning, and each
        meaning has one name.
    O5  A name stays below its prefix: no `..`, no empty segment, no absolute
        path, and nothing that a store would escape.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from typing import Final, Self

from dray.errors import Invalid

WAL_PREFIX: Final = "wal/v1/"
FILES_PREFIX: Final = "compaction/v1/"
META_PREFIX: Final = "meta/v1/"
CLUSTER_NAME: Final = "cluster.json"

NAME_BYTES_MAX: Final = 800  # S3 takes 1,024 with the prefix
SEGMENT_BYTES_MAX: Final = 240  # file systems take 255
ZONE_BYTES_MAX: Final = 75  # three characters each when escaped, and `zone=`

_NAME = re.compile(r"[A-Za-z0-9._=+/-]+")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_WAL = re.compile(
    r"wal/v1/zone=([^/]*)/domain=(0|[1-9][0-9]{0,9})/date=([0-9]{4})/([0-9]{2})/([0-9]{2})/([0-9a-f]{32})\.wo"
)
_PARQUET = re.compile(
    r"compaction/v1/topic=([0-9a-f]{32})/partition=(0|[1-9][0-9]{0,9})/domain=(0|[1-9][0-9]{0,9})"
    r"/date=([0-9]{4})/([0-9]{2})/([0-9]{2})/([0-9a-f]{32})\.parquet"
)
_CHECKPOINT = re.compile(
    r"meta/v1/(?P<log>[0-9a-f]{16})/domain=(?P<domain>[0-9]+)/(?P<position>[0-9]{20})-[0-9a-f]{32}\.checkpoint"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOMAIN_END = 1 << 32
_PARTITION_END = 1 << 31
_ID_BYTES = 16


class ObjectKind(IntEnum):
    """How the records lie in an object. The numbers are part of the checkpoint format."""

    WAL = 0
    """As received, of many streams (`dray.wal`)."""
    PARQUET = 1
    """Rows of one stream as columns (`dray.parquet`)."""
    KFS = 2
    BLOCK = 3
    """Rows of an index that were sealed: it tells where the records lie."""


class BadName(Invalid):
    """This can not be the name of an object."""


def check_name(name: str) -> str:
    """The name itself, if it is one (O5)."""
    if not _NAME.fullmatch(name):
        raise BadName("a name is made of letters, digits and ._=+-/", name=repr(name[:100]))
    if len(name) > NAME_BYTES_MAX:
        raise BadName("the name is too long", name=name[:100], length=len(name), longest=NAME_BYTES_MAX)
    for segment in name.split("/"):
        if not segment or segment.startswith("."):
            raise BadName("no part between slashes may be empty or begin with a dot", name=name)
        if len(segment) > SEGMENT_BYTES_MAX:
            raise BadName("a part between slashes is too long", name=name[:100], longest=SEGMENT_BYTES_MAX)
    return name


def is_name(name: str) -> bool:
    """Whether an object may be called so."""
    try:
        check_name(name)
    except BadName:
        return False
    return True


def check_prefix(prefix: str) -> str:
    """The start of names, itself: empty, or the beginning of a good name."""
    if prefix:
        check_name(prefix + "x" if prefix.endswith("/") else prefix)
    return prefix


def is_given_once(name: str) -> bool:
    """Whether a name carries a wal id: it is put by one process, once, and read only after a commit names it (W1)."""
    return _WAL.fullmatch(name) is not None or _PARQUET.fullmatch(name) is not None


def object_path(
    kind: ObjectKind, *, zone: str, domain: int, created_ms: int, object_id: bytes, topic_id: bytes = b"",
    partition: int = 0,
) -> str:  # fmt: skip
    """The path of an object: the one place where it is put together. Only a file of one stream has topic and partition.

    Raises:
        BadName: no object can be called so, or its kind has no names yet.
    """
    match kind:
        case ObjectKind.WAL:
            return WalName.of(zone=zone, domain=domain, created_ms=created_ms, wal_id=object_id).path()
        case ObjectKind.PARQUET:
            return ParquetName.of(
                topic_id=topic_id, partition=partition, domain=domain, created_ms=created_ms, file_id=object_id
            ).path()
        case _:
            raise BadName("objects of this kind have no names yet", kind=kind.name)


def owner_of(path: str) -> tuple[int, bytes]:
    """The domain and the id that any object's name tells; `BadName` for what is none."""
    if path.startswith(FILES_PREFIX):
        file = ParquetName.parse(path)
        return file.domain, file.file_id
    name = WalName.parse(path)
    return name.domain, name.wal_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WalName:
    """What the name of a WAL object says."""

    zone: str
    domain: int
    day: date
    wal_id: bytes

    @classmethod
    def of(cls, *, zone: str, domain: int, created_ms: int, wal_id: bytes) -> Self:
        """The name of an object created at this moment."""
        return cls(zone=zone, domain=domain, day=_day(created_ms), wal_id=wal_id)

    def path(self) -> str:
        """Build the path (O4)."""
        _check_parts(self.domain, self.wal_id)
        zone, day = _escape(self.zone), _spelled(self.day)
        return f"{WAL_PREFIX}zone={zone}/domain={self.domain}/date={day}/{self.wal_id.hex()}.wo"

    @classmethod
    def parse(cls, path: str) -> Self:
        """Read a path that `path` built; anything else is `BadName` (O4)."""
        match = _WAL.fullmatch(path)
        if match is None:
            raise BadName("not the name of a WAL object", name=path[:200])
        zone, domain, year, month, day, wal_id = match.groups()
        try:
            found = cls(
                zone=_unescape(zone),
                domain=int(domain),
                day=date(int(year), int(month), int(day)),
                wal_id=bytes.fromhex(wal_id),
            )
            rebuilt = found.path()
        except ValueError as error:
            raise BadName("not the name of a WAL object", name=path[:200]) from error
        if rebuilt != path:
            raise BadName("not the name of a WAL object", name=path[:200])
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetName:
    """What the name of a Parquet file says: a topic's name may be too long for a path, its id never is."""

    topic_id: bytes
    partition: int
    domain: int
    day: date
    file_id: bytes
    """Log id, session and counter, as in a wal id: each attempt to write a file has its own."""

    @classmethod
    def of(cls, *, topic_id: bytes, partition: int, domain: int, created_ms: int, file_id: bytes) -> Self:
        """The name of a file created at this moment."""
        return cls(topic_id=topic_id, partition=partition, domain=domain, day=_day(created_ms), file_id=file_id)

    def path(self) -> str:
        """Build the path (O4)."""
        _check_parts(self.domain, self.file_id)
        if len(self.topic_id) != _ID_BYTES:
            raise BadName("a topic id has 16 bytes", length=len(self.topic_id))
        if not 0 <= self.partition < _PARTITION_END:
            raise BadName("a partition is a number of 31 bits", partition=self.partition)
        folder = f"{FILES_PREFIX}topic={self.topic_id.hex()}/partition={self.partition}/domain={self.domain}"
        return f"{folder}/date={_spelled(self.day)}/{self.file_id.hex()}.parquet"

    @classmethod
    def parse(cls, path: str) -> Self:
        """Read a path that `path` built; anything else is `BadName` (O4)."""
        match = _PARQUET.fullmatch(path)
        if match is None:
            raise BadName("not the name of a Parquet file", name=path[:200])
        topic_id, partition, domain, year, month, day, file_id = match.groups()
        try:
            found = cls(
                topic_id=bytes.fromhex(topic_id),
                partition=int(partition),
                domain=int(domain),
                day=date(int(year), int(month), int(day)),
                file_id=bytes.fromhex(file_id),
            )
        except ValueError as error:
            raise BadName("not the name of a Parquet file", name=path[:200]) from error
        found.path()
        return found


def checkpoints_prefix(log_id: bytes, domain: int) -> str:
    """How the names of a domain's checkpoints begin."""
    return f"{META_PREFIX}{log_id.hex()}/domain={domain}/"


def checkpoint_path(log_id: bytes, domain: int, position: int, digest: bytes) -> str:
    """The name of a checkpoint: of which log, where in it, and of which bytes."""
    return f"{checkpoints_prefix(log_id, domain)}{position:020d}-{digest.hex()}.checkpoint"


def parse_checkpoint_path(path: str) -> int | None:
    """The position of a checkpoint; None for what is none."""
    match = _CHECKPOINT.fullmatch(path)
    return None if match is None else int(match["position"])


def log_of_checkpoint(path: str, domain: int) -> bytes | None:
    """The log that a checkpoint of this domain is of; None for everything else."""
    match = _CHECKPOINT.fullmatch(path)
    return None if match is None or int(match["domain"]) != domain else bytes.fromhex(match["log"])


def _day(created_ms: int) -> date:
    try:
        return (_EPOCH + timedelta(milliseconds=created_ms)).date()
    except OverflowError as error:
        raise BadName("the creation time is no date", created_ms=created_ms) from error


def _spelled(day: date) -> str:
    return f"{day.year:04}/{day.month:02}/{day.day:02}"


def _check_parts(domain: int, object_id: bytes) -> None:
    if not 0 <= domain < _DOMAIN_END:
        raise BadName("a domain is a number of 32 bits", domain=domain)
    if len(object_id) != _ID_BYTES:
        raise BadName("a wal id has 16 bytes", length=len(object_id))


def _escape(zone: str) -> str:
    """Bytes that a store might change become `=XX`."""
    try:
        raw = zone.encode()
    except UnicodeEncodeError as error:
        raise BadName("the zone is not valid text", zone=repr(zone[:100])) from error
    if len(raw) > ZONE_BYTES_MAX:
        raise BadName("the zone is too long", zone=zone[:100], bytes=len(raw), longest=ZONE_BYTES_MAX)
    return "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in raw)


def _unescape(text: str) -> str:
    head, *rest = text.split("=")
    parts = [head.encode()]
    for part in rest:
        parts += [bytes.fromhex(part[:2]), part[2:].encode()]
    return b"".join(parts).decode()
