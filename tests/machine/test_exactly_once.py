"""Writers that crash, sleep and repeat themselves, on a log that delivers copies at any time.

Each operation is one batch whose timestamp is its number, so the index tells
how often it was applied. A rule that is taken away must be found out.
"""

import random
from collections.abc import Callable

import pytest

from dray.machine import checkpoint
from dray.machine.append import Accepted, Append, Appended, pack_rows
from dray.machine.machine import Machine
from dray.machine.names import SessionId, wal_id
from dray.machine.sessions import Expire, KeepAlive, Open, Opened, Session, Sessions, Swept
from dray.machine.step import Outcome
from dray.machine.streams import Streams

from .scribe import LOG, NOW, entry
from .shop import Shop, row

NAMES = ("alice", "bob")


class Client:
    """One process: one operation in flight, the same bytes until it is decided (Q3)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nonce = b""
        self.session = 0
        self.n = 0
        self.wal = 0
        self.op = 0
        self.flight = b""


class Storm:
    """A log, two clients, and a network that keeps everything it ever carried."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.shop = Shop()
        [self.stream] = self.shop.topic("t", 1)
        self.carried: list[bytes] = []
        self.clients = {name: Client(name) for name in NAMES}
        self.ops = 0
        self.acked: set[int] = set()
        self.dead: set[int] = set()
        self.nonces = 0

    @property
    def machine(self) -> Machine:
        return self.shop.tape.machine

    def run(self, steps: int) -> "Storm":
        actions: list[Callable[[], None]] = [
            self.send, self.send, self.send, self.deliver, self.deliver, self.restart, self.expire, self.sweep,
            self.reload,
        ]  # fmt: skip
        for _ in range(steps):
            self.dice.choice(actions)()
        return self

    def open(self, client: Client) -> None:
        self.nonces += 1
        client.nonce = self.nonces.to_bytes(16, "big")
        seen = self.machine.sessions.newest
        command = Open(
            name=client.name, nonce=client.nonce, seen=seen, instance=client.name.encode().ljust(16), kind=0,
            lowest_version=1, highest_version=1, wall_ms=NOW,
        )  # fmt: skip
        client.session = client.n = client.wal = 0
        self.put(entry(command))

    def send(self) -> None:
        client = self.clients[self.dice.choice(NAMES)]
        if not client.session:
            self.open(client)
            return
        if not client.flight:
            self.ops += 1
            client.op, client.wal = self.ops, client.wal + 1
            command = Append(
                wal_id=wal_id(LOG, SessionId(client.session), client.wal), size=1 << 20, created_ms=NOW, zone="",
                packed=pack_rows([row(self.stream, 1, stamp=client.op)]),
            )  # fmt: skip
            client.flight = entry(command, session=client.session, n=client.n + 1)
        if self.dice.random() < 0.3:
            self.carried.append(client.flight)  # on its way: it may arrive at any later time
        else:
            self.put(client.flight)

    def put(self, raw: bytes) -> None:
        self.carried.append(raw)
        self.settle(raw, self.shop.tape.write(raw))

    def deliver(self) -> None:
        if self.carried:
            raw = self.dice.choice(self.carried[-60:])
            self.settle(raw, self.shop.tape.write(raw))

    def settle(self, raw: bytes, applied) -> None:
        """Every process follows the log: the first Executed or Dead decides."""
        for client in self.clients.values():
            verdict = applied.verdicts[0] if applied.verdicts else None
            if isinstance(verdict, Opened) and verdict.nonce == client.nonce and not client.session:
                client.session, client.n = verdict.session, 0
            if raw != client.flight:
                continue
            if applied.outcome is Outcome.EXECUTED:
                client.flight, client.n = b"", client.n + 1
                if isinstance(verdict, Appended):
                    assert [type(answer) for answer in verdict] == [Accepted]
                    self.acked.add(client.op)
            elif applied.outcome is Outcome.DEAD:
                self.dead.add(client.op)
                client.flight, client.session, client.nonce = b"", 0, b""

    def restart(self) -> None:
        """What was in flight stays unknown: nobody asks again."""
        if self.dice.random() < 0.5:
            client = self.clients[self.dice.choice(NAMES)]
            client.flight, client.session, client.nonce = b"", 0, b""

    def expire(self) -> None:
        live = [s for s in self.machine.sessions.live.values() if s.name in NAMES]
        if live and self.dice.random() < 0.5:
            victim = self.dice.choice(live)
            self.shop.writer.send(Expire(session=victim.id, last_n=victim.last_n))

    def sweep(self) -> None:
        self.shop.writer.send(Swept(sessions=tuple(self.machine.sessions.ended)), KeepAlive())

    def reload(self) -> None:
        loaded = checkpoint.load(checkpoint.dump(self.machine), type(self.machine))
        assert checkpoint.fingerprint(loaded) == checkpoint.fingerprint(self.machine)
        self.shop.tape.machine = self.shop.machine = loaded

    def check(self) -> None:
        found = [r.max_timestamp_ms for r in self.machine.streams.find(self.stream).index.rows(0)]
        assert len(found) == len(set(found)), "an operation was applied twice"
        assert self.acked <= set(found), "an acked operation is lost"
        assert not self.dead & set(found), "a dead operation was applied"
        names = [session.name for session in self.machine.sessions.live.values()]
        assert len(names) == len(set(names)), "two sessions have one name"


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_every_operation_is_applied_at_most_once_and_every_acked_one_exactly_once(chunk):
    """Q1, Q2, Q3, Q4, Q5, R-006, R-043, R-044"""
    acked = dead = 0
    for seed in range(chunk * 25, chunk * 25 + 25):
        print(f"seed={seed}")
        storm = Storm(seed).run(250)
        storm.check()
        acked, dead = acked + len(storm.acked), dead + len(storm.dead)
    assert acked > 500
    assert dead > 20


class NoNumbers(Sessions):
    """Planted: any n of a live session is executed."""

    def judge(self, session, n, entry_hash):
        return Outcome.EXECUTED if session in self.live else Outcome.DEAD


class IdsFromNonces(Sessions):
    """Planted: a session id is taken from its nonce."""

    def new_id(self, command):
        self.newest = SessionId(max(self.newest, int.from_bytes(command.nonce, "big")))
        return SessionId(int.from_bytes(command.nonce, "big"))


class TheExpiredMayWrite(Sessions):
    """Planted: an entry of an ended session is executed if it follows the last one."""

    def __init__(self, timeline):
        super().__init__(timeline)
        self.ghosts = {}

    def end(self, step, number, reason):
        self.ghosts[number] = self.live[number]
        super().end(step, number, reason)

    def judge(self, session, n, entry_hash):
        ghost = self.ghosts.get(session)
        if ghost is not None and session not in self.live and n == ghost.last_n + 1:
            self.live[session] = ghost
            self._names[ghost.name] = session
        return super().judge(session, n, entry_hash)


@pytest.mark.parametrize("kind", [NoNumbers, IdsFromNonces, TheExpiredMayWrite])
def test_a_rule_that_is_taken_away_is_found_out(kind, monkeypatch):
    """The storm is strong enough to need Q1, Q2 and Q3."""
    monkeypatch.setattr("dray.machine.machine.Sessions", kind)
    monkeypatch.setattr(Session, "may_commit_wal", lambda *_: True)  # X5 would hide a second copy
    for seed in range(60):
        try:
            Storm(seed).run(250).check()
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{kind.__name__} was not noticed")


def test_an_append_that_names_an_older_session_is_refused_by_one_rule(monkeypatch):
    """H4: without `owns`, an object that a sweep may have deleted would be committed."""
    shop = Shop()
    [stream] = shop.topic("t", 1)
    older = shop.next_wal()
    shop.reopen()
    monkeypatch.setattr(Streams, "owns", lambda *_: True)
    assert isinstance(shop.writer.do(shop.command(row(stream), name=older)), Appended)
