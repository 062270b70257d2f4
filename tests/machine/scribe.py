"""A log in a list, and writers that keep the rules of Q2 and Q3."""

import itertools

from dray.log import envelope
from dray.machine.command import Command, encode
from dray.machine.head import Genesis
from dray.machine.machine import Machine
from dray.machine.names import LogId, SessionId
from dray.machine.sessions import KeepAlive, Open, Opened, SessionKind
from dray.machine.step import Applied
from dray.machine.verdict import Verdict

NOW = 1_700_000_000_000
HOUR = 3_600_000
LOG = LogId(b"log-id-8")
CLUSTER = b"cluster-id-16-by"
MACHINES = [Machine]
"""What a new log is folded by; a test that plants a bug puts its subclass here."""


class Tape:
    """Entries in order, folded by a machine as they come."""

    def __init__(
        self, *, domain: int = 0, domains: int = 1, generation: int = 0, min_grace_ms: int = 60_000, version: int = 1
    ) -> None:
        self.machine = MACHINES[-1]()
        self.entries: list[tuple[int, bytes]] = []
        self.nonces = itertools.count(1)
        genesis = Genesis(
            cluster_id=CLUSTER, log_id=LOG, domain=domain, domains=domains,
            generation=generation, min_grace_ms=min_grace_ms, version=version,
        )  # fmt: skip
        self.write(entry(genesis, version=version))

    def write(self, raw: bytes) -> Applied:
        position = len(self.entries) + 1
        self.entries.append((position, raw))
        return self.machine.apply(position, raw, True)

    def open_entry(self, name: str = "b1", **fields) -> bytes:
        given = {
            "nonce": next(self.nonces).to_bytes(16, "big"), "seen": self.machine.sessions.newest,
            "instance": name.encode().ljust(16, b"."), "kind": SessionKind.BROKER,
            "lowest_version": 1, "highest_version": self.machine.version, "wall_ms": self.machine.time_ms,
        } | fields  # fmt: skip
        return entry(Open(name=name, **given), version=self.machine.version)

    def open(self, name: str = "b1", **fields) -> "Writer":
        applied = self.write(self.open_entry(name, **fields))
        assert applied.verdicts is not None
        opened = applied.verdicts[0]
        assert isinstance(opened, Opened), opened
        return Writer(self, opened)


class Writer:
    """A session that numbers its entries."""

    def __init__(self, tape: Tape, opened: Opened) -> None:
        self.tape = tape
        self.session: SessionId = opened.session
        self.n = 0
        self.time_ms = opened.time_ms
        self.wal = 0

    def pass_time(self, ms: int) -> None:
        self.time_ms += ms

    def live(self, ms: int) -> None:
        """Let time pass with keep-alives, so that it does not jump."""
        while ms > 0:
            self.pass_time(min(ms, HOUR // 2))
            ms -= HOUR // 2
            self.send(KeepAlive())

    def entry(
        self, *commands: Command, n: int | None = None, version: int | None = None, seen: int | None = None
    ) -> bytes:
        """Of the active version, and of a writer that has seen everything, unless it is told otherwise."""
        number, active = self.n + 1 if n is None else n, self.tape.machine.version
        return entry(
            *commands,
            session=self.session,
            n=number,
            time_ms=self.time_ms,
            version=active if version is None else version,
            seen=self.tape.machine.position if seen is None else seen,
        )

    def send(self, *commands: Command, seen: int | None = None) -> Applied:
        raw = self.entry(*commands, seen=seen)
        self.n += 1
        return self.tape.write(raw)

    def do(self, command: Command, *, seen: int | None = None) -> Verdict:
        applied = self.send(command, seen=seen)
        assert applied.verdicts is not None, applied
        return applied.verdicts[0]


def entry(
    *commands: Command, session: int = 0, n: int = 0, time_ms: int = NOW, version: int = 1, seen: int = 0
) -> bytes:
    return envelope.encode(
        [encode(command, version) for command in commands],
        session=session, n=n, time_ms=time_ms, seen_position=seen, seen_digest=0, version=version,
    )  # fmt: skip
