"""A data directory: what lies where, and whose it is.

    DIR/LOCK                     held by the one process that owns the directory
    DIR/identity.json            cluster and installation, written once
    DIR/meta.sock                the log server of the owner
    DIR/meta/domain-00000/       log/ and checkpoints/ of a domain
    DIR/objects/                 the object store of the embedded default

Invariants
    ND1  The identity of a directory is durable before anything else is
         written into it, and never changes.
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


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The places of a data directory."""

    root: Path

    @property
    def socket(self) -> Path:
        return self.root / "meta.sock"

    @property
    def meta(self) -> Path:
        return self.root / "meta"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    def log(self, domain: int) -> Path:
        return self.meta / f"domain-{domain:05d}" / "log"

    def checkpoints(self, domain: int) -> Path:
        return self.meta / f"domain-{domain:05d}" / "checkpoints"

    def domains(self, disk: Disk) -> list[int]:
        """The domains whose logs lie here."""
        names = disk.list(self.meta)
        return [int(name.removeprefix("domain-")) for name in names if name.startswith("domain-")]

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
        identity = Identity(
            format=FORMAT,
            cluster_id=str(cluster_id or new_uuid(entropy)),
            instance_id=str(new_uuid(entropy)),
        )
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
