"""A data directory: what lies where, and whose it is.

    DIR/LOCK                     held by the one process that owns the directory
    DIR/identity.json            cluster and installation, written once
    DIR/meta.sock                the log server of the owner
    DIR/meta/domain-00000/       log/ and checkpoints/ of a domain
    DIR/objects/                 the object store of the embedded default

Invariants
    ND1  The identity of a directory is durable before anything else is
         written into it, and never changes.
    ND2  A log that was once begun is never begun again: where it is missing,
         that is damage and not a new cluster.
"""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dray.disk import Disk
from dray.errors import Conflict, Corrupt, NotFound
from dray.ids import Entropy, new_uuid

FORMAT: Final = 1


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
    def meta(self) -> Path:
        return self.elsewhere or self.root / "meta"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    def home(self, domain: int) -> Path:
        return self.meta / f"domain-{domain:05d}"

    def log(self, domain: int) -> Path:
        return self.home(domain) / "log"

    def checkpoints(self, domain: int) -> Path:
        return self.home(domain) / "checkpoints"

    def domains(self, disk: Disk) -> list[int]:
        """The domains whose logs lie here."""
        names = disk.list(self.meta)
        found = [int(name.removeprefix("domain-")) for name in names if name.startswith("domain-")]
        if names and not found:  # ND2
            raise Corrupt(
                "the log is missing: a recovery was cut short, or files were lost. Run: drayd admin meta recover",
                path=self.meta,
            )
        return found

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
        foreign = [name for name in disk.list(self.root) if name != "LOCK" and not name.endswith(".part")]
        if foreign:
            raise WrongDirectory(
                "the directory is not empty and has no identity: choose another one", path=self.root, found=foreign[0]
            )
        identity = new_identity(entropy, cluster_id)
        temporary = self.root / "identity.json.part"
        disk.remove(temporary)
        file = disk.create(temporary)
        try:
            file.write([msgspec.json.format(msgspec.json.encode(identity))])
            file.sync()
        finally:
            file.close()
        disk.rename(temporary, self.root / "identity.json")
        disk.sync_dir(self.root)
        return identity


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
