"""Which logs a URL means: values only, nothing is opened (see `dray.log.opening`).

    local:DIR         files of this machine, a directory for each domain below DIR
    unix:SOCKET       logs that another process of this machine keeps and serves
    tcp:HOST:PORT     the same, over TCP
    postgresql://...  rows of a PostgreSQL database, for brokers of several machines
    etcd://...        keys of an etcd, for brokers of several machines; etcds:// with TLS
    oxia://...        a sequence of keys in an Oxia, for brokers of several machines; oxias:// with TLS
    deltalog:         objects of the cluster's own store, for brokers that have a bucket and nothing else
    deltalog:DIR      the same as files of a directory that brokers share
    memory:           logs of this process, which end with it

A URL stands for the logs of all domains; a domain's number chooses one.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from dray.errors import Invalid
from dray.log.sockets import Address

SHARED_SCHEMES: Final = ("postgresql:", "postgres:", "etcd:", "etcds:", "oxia:", "oxias:", "deltalog:")
"""How the URLs of `SharedLogs` begin."""
SHARED_FORMS: Final = (
    "postgresql://USER@HOST/DATABASE, etcd://HOST:PORT/PREFIX, oxia://HOST:PORT/NAMESPACE, deltalog:[DIR]"
)
_KNOWN: Final = f"local:DIR, unix:SOCKET, tcp:HOST:PORT, {SHARED_FORMS} or memory:"


class PasswordInUrl(Invalid):
    """A URL is logged, shown, and an argument of processes: what stands in it is no secret any more."""


@dataclass(frozen=True, slots=True)
class LocalLogs:
    """Kept in files below a directory."""

    root: Path

    def __str__(self) -> str:
        return f"local:{self.root}"

    def home(self, domain: int) -> Path:
        """What belongs to a domain: its log, and beside it its checkpoints."""
        return self.root / f"domain-{domain:05d}"

    def directory(self, domain: int) -> Path:
        """The files of a domain's log."""
        return self.home(domain) / "log"


@dataclass(frozen=True, slots=True)
class ServedLogs:
    """Kept by another process, which serves them on a socket."""

    address: Address

    def __str__(self) -> str:
        if isinstance(self.address, Path):
            return f"unix:{self.address}"
        host, port = self.address
        return f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}"


@dataclass(frozen=True, slots=True)
class PostgresLogs:
    """Kept in a database. Its tables belong to one cluster: two clusters have two databases, or two schemas."""

    dsn: str
    """As libpq has it, without a password."""

    def __str__(self) -> str:
        return self.dsn


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdLogs:
    """Kept in keys below a prefix. Two clusters have two prefixes."""

    text: str
    """The whole URL, in which no secret stands."""
    endpoints: tuple[str, ...]
    prefix: str
    secure: bool = False
    user: str | None = None
    password_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class OxiaLogs:
    """Kept in keys of a namespace that begin with a prefix. Two clusters have two namespaces, or two prefixes."""

    text: str
    """The whole URL, in which no secret stands."""
    endpoints: tuple[str, ...]
    namespace: str = "default"
    prefix: str = "dray"
    secure: bool = False
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class DeltaLogs:
    """Kept as objects that are created once, by whoever writes them."""

    root: Path | None = None
    """A directory that the brokers share. None: the cluster's object store."""

    def __str__(self) -> str:
        return "deltalog:" if self.root is None else f"deltalog:{self.root}"


@dataclass(frozen=True, slots=True)
class MemoryLogs:
    """Kept in the memory of this process."""

    def __str__(self) -> str:
        return "memory:"


SharedLogs: TypeAlias = PostgresLogs | EtcdLogs | OxiaLogs | DeltaLogs
"""Kept by no process of ours: brokers of several machines share them, and whoever reaches them."""
LogUrl: TypeAlias = LocalLogs | ServedLogs | SharedLogs | MemoryLogs


def parse_log_url(text: str) -> LogUrl:
    """What a URL means, paths made absolute; `Invalid` if it means nothing."""
    scheme, _, rest = text.partition(":")
    match scheme:
        case "local" if rest:
            return LocalLogs(Path(rest).absolute())
        case "unix" if rest:
            return ServedLogs(Path(rest).absolute())
        case "tcp":
            host, _, port = rest.rpartition(":")
            if host and port.isdecimal() and 0 < int(port) < 1 << 16:
                return ServedLogs((host.removeprefix("[").removesuffix("]"), int(port)))
        case "postgresql" | "postgres" if rest.startswith("//"):
            return PostgresLogs(_without_password(text))
        case "etcd" | "etcds" if (found := _etcd(text)) is not None:
            return found
        case "oxia" | "oxias" if (oxia := _oxia(text)) is not None:
            return oxia
        case "deltalog":
            return DeltaLogs(Path(rest).absolute() if rest else None)
        case "memory" if not rest:
            return MemoryLogs()
    raise Invalid("no log has this kind of URL", url=text, known=_KNOWN)


def _without_password(text: str) -> str:
    found = urlsplit(text)
    if found.password is not None or any("password" in name.lower() for name, _ in parse_qsl(found.query)):
        raise PasswordInUrl("expected no password in the URL: use PGPASSWORD, PGPASSFILE or ~/.pgpass")
    return text


_ETCD_FILES: Final = frozenset({"password_file", "ca", "cert", "key"})


def _etcd(text: str) -> EtcdLogs | None:
    """etcd://[USER@]HOST:PORT[,HOST:PORT...]/PREFIX[?password_file=FILE&ca=FILE&cert=FILE&key=FILE]"""
    found = urlsplit(text)
    user, _, hosts = found.netloc.rpartition("@")
    options = dict(parse_qsl(found.query))
    if ":" in user or "password" in options:
        raise PasswordInUrl("expected no password in the URL: give a file that has it, as password_file=FILE")
    endpoints, prefix = tuple(hosts.split(",")), found.path.strip("/")
    if not _are_endpoints(endpoints) or not prefix or found.fragment or not options.keys() <= _ETCD_FILES:
        return None
    files = {name: Path(path) for name, path in options.items()}
    return EtcdLogs(
        text=text, endpoints=endpoints, prefix=prefix, secure=found.scheme == "etcds", user=user or None, **files
    )


_OXIA_FILES: Final = frozenset({"token_file", "ca", "cert", "key"})
_OXIA_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""Without `/`, by which Oxia sorts keys in its own way."""


def _oxia(text: str) -> OxiaLogs | None:
    """oxia://HOST:PORT[,HOST:PORT...][/NAMESPACE][?prefix=NAME&token_file=FILE&ca=FILE&cert=FILE&key=FILE]"""
    found = urlsplit(text)
    options = dict(parse_qsl(found.query, keep_blank_values=True))
    if "@" in found.netloc or options.keys() & {"password", "token"}:
        raise PasswordInUrl("expected no secret in the URL: give a file that has the token, as token_file=FILE")
    endpoints, namespace = tuple(found.netloc.split(",")), found.path.strip("/") or "default"
    prefix = options.pop("prefix", "dray")
    names_fit = _OXIA_NAME.fullmatch(namespace) and _OXIA_NAME.fullmatch(prefix)
    if not _are_endpoints(endpoints) or not names_fit or found.fragment or not options.keys() <= _OXIA_FILES:
        return None
    files = {name: Path(path) for name, path in options.items()}
    return OxiaLogs(
        text=text, endpoints=endpoints, namespace=namespace, prefix=prefix, secure=found.scheme == "oxias", **files
    )


def _are_endpoints(texts: tuple[str, ...]) -> bool:
    """Whether each is HOST:PORT."""
    parts = [one.rpartition(":") for one in texts]
    return all(host and port.isdecimal() and 0 < int(port) < 1 << 16 for host, _, port in parts)
