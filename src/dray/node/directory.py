"""A data directory: what lies where, and whose it is.

    DIR/LOCK                     held by the one process that owns the directory
    DIR/identity.json            cluster and installation, written once
    DIR/log.json                 that a log was begun, and where
    DIR/meta.sock                the log server of the owner
    DIR/meta.alone               while that is a log server alone: checkpoints are shared in the store
    DIR/meta/domain-00000/       log/ and checkpoints/ of a domain
    DIR/objects/                 the object store of the embedded default

Invariants
    ND1  The identity of a directory is durable before anything else is
         written into it, and never changes.
    ND2  A log that was once begun is never begun again: where it is missing,
         that is damage and not a new cluster (see `dray.node.birth`).
"""

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dray.disk import Disk
from dray.errors import Conflict, Corrupt, NotFound
from dray.ids import Entropy, new_uuid
from dray.log.urls import LocalLogs, ServedLogs

FORMAT: Final = 1
MARK: Final = "log.json"
_HOME: Final = re.compile(r"domain-([0-9]{5})")


class WrongDirectory(Conflict):
    """The directory belongs to something else: choose another one."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What `identity.json` says."""

    format: int
    cluster_id: str
    instance_id: str

    @property
    def cluster(self) -> uuid.UUID:
        return uuid.UUID(self.cluster_id)

    @property
    def instance(self) -> uuid.UUID:
        return uuid.UUID(self.instance_id)


class LogMark(msgspec.Struct, frozen=True, kw_only=True):
    """What `log.json` says: the log was begun."""

    format: int
    path: str
    """Where the domains lie: `meta`, below the directory, or an absolute path."""
    domains: list[int]


def new_identity(entropy: Entropy, cluster_id: uuid.UUID | None = None) -> Identity:
    """A new installation, of a new cluster unless one is named."""
    return Identity(
        format=FORMAT,
        cluster_id=str(cluster_id or new_uuid(entropy)),
        instance_id=str(new_uuid(entropy)),
    )


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The places of a data directory. `elsewhere` puts the metadata into another directory than the rest."""

    root: Path
    elsewhere: Path | None = None

    @property
    def socket(self) -> Path:
        return self.root / "meta.sock"

    @property
    def alone(self) -> Path:
        return self.root / "meta.alone"

    @property
    def meta(self) -> Path:
        return self.elsewhere or self.root / "meta"

    @property
    def logs(self) -> LocalLogs:
        """The logs as who holds the lock opens them."""
        return LocalLogs(self.meta)

    @property
    def served(self) -> ServedLogs:
        """The same logs as everybody else opens them, while the owner runs."""
        return ServedLogs(self.socket)

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    def home(self, domain: int) -> Path:
        return self.logs.home(domain)

    def log(self, domain: int) -> Path:
        return self.logs.directory(domain)

    def checkpoints(self, domain: int) -> Path:
        return self.home(domain) / "checkpoints"

    def domains(self, disk: Disk) -> list[int]:
        """The domains whose logs lie here."""
        names = disk.list(self.meta)
        found = self._domains(disk)
        if names and not found:  # ND2
            raise Corrupt(
                "the log is missing: a recovery was cut short, or files were lost. Run: drayd admin meta recover",
                path=self.meta,
            )
        self._check_mark(disk)
        return found

    def holds_log(self, disk: Disk) -> bool:
        """Is there any file of the catalog's log here? It is begun last (ND5)."""
        return bool(disk.list(self.log(0)))

    def knows_log(self, disk: Disk) -> bool:
        """Was a log of this directory ever begun, as far as it remembers (ND2)?"""
        homes = (self.home(domain) for domain in self._domains(disk))
        return self._read_mark(disk) is not None or any(was_born(disk, home) for home in homes)

    @staticmethod
    def at(root: Path, disk: Disk) -> "DataDirectory":
        """The directory that lies there, with its metadata where it says that they are."""
        root = root.absolute()
        mark = DataDirectory(root)._read_mark(disk)
        return DataDirectory(root, None if mark is None or mark.path == "meta" else Path(mark.path))

    def remember_log(self, disk: Disk) -> None:
        """Remember, durably, that the log was begun, and where it is kept (ND2)."""
        path = "meta" if self.elsewhere is None else str(self.meta)
        mark = LogMark(format=FORMAT, path=path, domains=self.domains(disk))
        if self._read_mark(disk) != mark:
            self._write(disk, MARK, mark)

    def _domains(self, disk: Disk) -> list[int]:
        matches = (_HOME.fullmatch(name) for name in disk.list(self.meta))
        return [int(match[1]) for match in matches if match is not None]

    def _read_mark(self, disk: Disk) -> LogMark | None:
        path = self.root / MARK
        try:
            mark = msgspec.json.decode(disk.read(path), type=LogMark)
        except NotFound:
            return None
        except msgspec.DecodeError as broken:
            raise Corrupt("log.json cannot be read: restore it from a backup", path=path) from broken
        if mark.format > FORMAT:
            raise WrongDirectory(
                "the directory was written by a newer Dray: run that one", format=mark.format, known=FORMAT
            )
        return mark

    def _check_mark(self, disk: Disk) -> None:
        """Raise if a log was begun and is not where it is looked for (ND2)."""
        mark = self._read_mark(disk)
        missing = [] if mark is None else [domain for domain in mark.domains if not disk.list(self.log(domain))]
        if mark is None or not missing:
            return
        if any(disk.list(self.meta / f"fresh-{self.home(domain).name}") for domain in missing):
            raise Corrupt(
                "the log of a domain is missing: a recovery was cut short. Run: drayd admin meta recover --domain",
                path=self.meta, domain=missing[0],
            )  # fmt: skip
        kept = self.root / mark.path
        if kept != self.meta:
            raise Corrupt(
                "the log of this directory is kept elsewhere: start with the --log that was used before, or move the "
                "log here",
                kept=kept, looked=self.meta,
            )  # fmt: skip
        raise Corrupt(
            "the log is missing, but it was begun: mount its volume, or restore it from a backup",
            path=self.meta, domain=missing[0],
        )  # fmt: skip

    def read_identity(self, disk: Disk) -> Identity:
        """Whose directory it is; `NotFound` if nobody's yet."""
        path = self.root / "identity.json"
        raw = disk.read(path)
        try:
            identity = msgspec.json.decode(raw, type=Identity)
            uuid.UUID(identity.cluster_id), uuid.UUID(identity.instance_id)
        except (msgspec.DecodeError, ValueError) as broken:
            raise Corrupt("identity.json cannot be read: restore it from a backup", path=path) from broken
        if identity.format > FORMAT:
            raise WrongDirectory(
                "the directory was written by a newer Dray: run that one", format=identity.format, known=FORMAT
            )
        return identity

    def claim(self, disk: Disk, entropy: Entropy, cluster_id: uuid.UUID | None = None) -> Identity:
        """The identity of this directory, made now if it is new (ND1)."""
        try:
            identity = self.read_identity(disk)
        except NotFound:
            return self._found(disk, entropy, cluster_id)
        if cluster_id is not None and identity.cluster != cluster_id:
            raise WrongDirectory(
                "the directory belongs to another cluster: choose another one", path=self.root,
                has=identity.cluster_id, wanted=cluster_id,
            )  # fmt: skip
        return identity

    def _found(self, disk: Disk, entropy: Entropy, cluster_id: uuid.UUID | None) -> Identity:
        if MARK in disk.list(self.root):  # ND2
            raise Corrupt("identity.json is missing, but a log was begun: restore it from a backup", path=self.root)
        foreign = [name for name in disk.list(self.root) if name != "LOCK" and not name.endswith(".part")]
        if foreign:
            raise WrongDirectory(
                "the directory is not empty and has no identity: choose another one", path=self.root, found=foreign[0]
            )
        identity = new_identity(entropy, cluster_id)
        self._write(disk, "identity.json", identity)
        return identity

    def _write(self, disk: Disk, name: str, value: msgspec.Struct) -> None:
        """Put a small file into its place, whole and durable."""
        temporary = self.root / f"{name}.part"
        disk.remove(temporary)
        file = disk.create(temporary)
        try:
            file.write([msgspec.json.format(msgspec.json.encode(value))])
            file.sync()
        finally:
            file.close()
        disk.rename(temporary, self.root / name)
        disk.sync_dir(self.root)


BORN: Final = "born"


def mark_born(disk: Disk, home: Path) -> None:
    """Remember, durably, that the log of this domain was begun (ND2)."""
    if BORN in disk.list(home):
        return
    file = disk.create(home / BORN)
    try:
        file.sync()
    finally:
        file.close()
    disk.sync_dir(home)


def was_born(disk: Disk, home: Path) -> bool:
    """Whether the log of this domain was ever begun."""
    return BORN in disk.list(home)
