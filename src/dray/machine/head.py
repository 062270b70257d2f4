"""Which log this is, and by which version of the rules it is folded.

Invariants
    M6  Genesis comes first and once; before it every entry is bad.
    M12  The active version only rises, by `Activate`, and only if every live
         broker and compactor said that it knows it.
"""

from typing import Annotated, Final

from msgspec import Meta

from dray.log import envelope
from dray.machine.command import Millis, Nonce, Packed, Version, encode
from dray.machine.names import LogId

SUPPORTED: Final = 2
"""The newest version of the rules that this build knows. 1: streams, producers, committed offsets; 2: open."""


class Genesis(Packed, frozen=True, kw_only=True):
    """The first entry of a log, alone, by nobody (session 0, n 0)."""

    number = 1

    cluster_id: Nonce
    log_id: Annotated[bytes, Meta(min_length=8, max_length=8)]
    domain: Annotated[int, Meta(ge=0, le=0xFFFF)]
    domains: Annotated[int, Meta(ge=1, le=0xFFFF)]
    """Data domains of the cluster; 1: the catalog is the only domain."""
    version: Version = 1
    generation: Annotated[int, Meta(ge=0, le=(1 << 22) - 1)] = 0
    min_grace_ms: Millis = 60_000
    """No `MarkDeleting` may be hastier than this."""


class Activate(Packed, frozen=True, kw_only=True):
    """From here on the rules of this version hold."""

    number = 6

    version: Version


def founding(genesis: Genesis, time_ms: int) -> bytes:
    """The first entry of a log."""
    return envelope.encode(
        [encode(genesis, genesis.version)], version=genesis.version,
        session=0, n=0, time_ms=time_ms, seen_position=0, seen_digest=0,
    )  # fmt: skip


def all_domains(domains: int) -> range:
    """Every domain of a cluster with so many data domains. One alone is the catalog itself."""
    return range(1 if domains == 1 else domains + 1)


class Head:
    """What every noun may ask about its log."""

    __slots__ = ("cluster_id", "domain", "domains", "generation", "grown_from", "log_id", "version")

    def __init__(self) -> None:
        self.version = 0
        """Active; 0 before Genesis."""
        self.cluster_id = b""
        self.log_id = LogId(b"")
        self.domain = 0
        self.domains = 0
        """Data domains; those of the catalog count."""
        self.grown_from = 0
        """How many there were at the birth, if some were added; else 0 (`dray.machine.domains`)."""
        self.generation = 0

    @property
    def is_catalog(self) -> bool:
        """Topics, brokers and producer ids are kept in domain 0."""
        return self.domain == 0

    @property
    def group_domains(self) -> int:
        """Over how many data domains groups are spread: those of the birth, for groups do not move (M13)."""
        return self.grown_from or self.domains

    @property
    def catalog_has_streams(self) -> bool:
        """Whether the catalog holds streams too: it was born as the only domain."""
        return self.group_domains == 1

    @property
    def data_domains(self) -> range:
        """The domains that hold streams."""
        return range(0 if self.catalog_has_streams else 1, 1 if self.domains <= 1 else self.domains + 1)

    def begin(self, genesis: Genesis) -> None:
        self.version = genesis.version
        self.cluster_id = genesis.cluster_id
        self.log_id = LogId(genesis.log_id)
        self.domain = genesis.domain
        self.domains = genesis.domains
        self.generation = genesis.generation
