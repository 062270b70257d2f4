"""A shard in a machine and its naive twin, brought the same commands by a seed."""

import random

from dray.machine import checkpoint
from dray.machine.heaps import answers
from dray.machine.heaps.answers import Enqueued, Granted, MessageGiven, Settled
from dray.machine.heaps.batches import BatchWord, Decide, Decided, Finish, Prepare
from dray.machine.heaps.catalog import CreateHeap, HeapCreated, HeapReady
from dray.machine.heaps.commands import (
    Buried,
    Bury,
    Drop,
    MessageRef,
    Moved,
    OpenShard,
    Purge,
    Purged,
    Replay,
    Spilled,
    Tick,
)
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.messages import BODY_COST
from dray.machine.heaps.order import best as best_of
from dray.machine.heaps.packets import (
    ATOMIC,
    IN_OBJECT,
    RELATIVE,
    Enqueue,
    EnqueueRow,
    Lease,
    Settle,
    Settlement,
    Spill,
    pack_messages,
    pack_settlements,
    pack_spilled,
)
from dray.machine.heaps.rows import State
from dray.machine.heaps.shard import BODY_OVERHEAD
from dray.machine.names import wal_id
from dray.machine.sessions import Close
from dray.machine.verdict import DONE, Refused, Why

from ..scribe import LOG, Tape
from .model import Message, Model, runs

EDGES = [-(1 << 63), -1, 0, 1, 5, 5, 5, (1 << 63) - 1]
KEYS = [bytes([number]) * 16 for number in range(3)]
CODES = {answers.DONE: "done", answers.ALREADY: "already", answers.LOST: "lost", answers.GONE: "gone",
         answers.DIED: "died"}  # fmt: skip
REFUSALS = {answers.MALFORMED: "malformed", answers.FULL: "full", answers.DEDUP_FULL: "dedup-full",
            answers.UNDECIDED: "undecided"}  # fmt: skip
STATES = {"ready": State.READY, "delayed": State.DELAYED, "leased": State.LEASED, "dead": State.DEAD,
          "prepared": State.PREPARED}  # fmt: skip


def draw_config(dice: random.Random) -> HeapConfig:
    return HeapConfig(
        max_retries=dice.randrange(4), backoff_base_ms=200, backoff_cap_ms=5_000, jitter=dice.random() < 0.8,
        max_lease_ms=dice.choice((60_000, 10_000)), dedup_window_ms=dice.choice((60_000, 600_000)),
        max_messages=dice.choice((30, 1_000)), max_inflight=dice.choice((7, 1_000)),
        max_leases_per_consumer=dice.choice((5, 1_000)), max_dedup_keys=dice.choice((6, 1_000)),
        dead_letters=dice.random() < 0.8, retention_ms=dice.choice((50_000, 10**9)),
        message_ttl_ms=dice.choice((0, 0, 20_000)), paused=dice.random() < 0.03, max_payload_bytes=2,
    )  # fmt: skip


class Twin:
    """Every step is one command, whose verdict and effects both sides must agree on."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.tape = Tape(version=2, min_grace_ms=0)
        self.writer = self.tape.open("b1")
        self.mode = self.dice.choice(list(Mode))
        self.model = Model(self.mode, draw_config(self.dice), 4)
        created = self.writer.do(
            CreateHeap(heap_id=b"h" * 16, name="jobs", mode=self.mode, partitions=4, config=self.model.config)
        )
        assert isinstance(created, HeapCreated)
        self.id = created.shard
        self.revision = 0
        self.configure()
        self.writer.do(HeapReady(heap_id=b"h" * 16, revision=0))
        self.tokens: list[tuple[int, int, bytes]] = []
        self.following = [0, 0, 0]
        self.idents: set[tuple[int, int, int]] = set()
        self.jumpers = 0

    @property
    def machine(self):
        return self.tape.machine

    @property
    def shard(self):
        return self.machine.heaps.all[self.id]

    def run(self, steps: int) -> None:
        acts = [
            (self.enqueue, 34), (self.lease, 24), (self.settle, 24), (self.tick, 5), (self.bury, 4), (self.replay, 3),
            (self.bury_replay_nack, 2), (self.drop, 1), (self.purge, 1), (self.spill, 2), (self.reload, 2),
            (self.alter, 1), (self.jump, 1), (self.prepare, 8), (self.decide, 3), (self.finish, 7),
        ]  # fmt: skip
        kinds = [act for act, weight in acts for _ in range(weight)]
        for _ in range(steps):
            self.dice.choice(kinds)()
            self.check()

    def do(self, command):
        """Let some time pass, and the machine judge; the twin is told how late it was."""
        self.writer.pass_time(self.dice.choice((0, 0, 1, 10, 300, 700, 3_000, 20_000)))
        verdict = self.writer.do(command)
        timeline = self.machine.timeline
        self.model.at(timeline.time_ms, timeline.running_ms, timeline.paused)
        return verdict

    # -- steps -------------------------------------------------------------

    def draw_row(self) -> tuple[EnqueueRow, bytes]:
        dice = self.dice
        key, seq = dice.choice((0, 0, 1, 2, 3, 3 if dice.random() < 0.9 else 4)), 0
        if 1 <= key <= 3:
            following = self.following[key - 1]
            if dice.random() < 0.3 and following:
                seq = dice.randrange(following)
            elif dice.random() < 0.2:
                seq = following + 1
                self.following[key - 1] += 2
            else:
                seq = following
                self.following[key - 1] += 1
        wait, flags = dice.choice((0, 0, 0, 500, 5_000)), RELATIVE
        if wait and dice.random() < 0.3:
            wait, flags = self.machine.time_ms + dice.choice((-500, 500, 3_000)), 0
        body = dice.randbytes(dice.randrange(6))
        partition = dice.randrange(5) if dice.random() < 0.05 else dice.randrange(4)
        row = EnqueueRow(
            dice.choice(EDGES), wait, partition, dice.choice((-1, -1, 0, 2)), flags, key, seq, 0, len(body)
        )
        return row, body

    def enqueue(self) -> None:
        drawn = [self.draw_row() for _ in range(self.dice.randrange(1, 6))]
        atomic = self.dice.random() < 0.3
        command = self.draw_messages(drawn, flags=ATOMIC if atomic else 0)
        verdict = self.do(command)
        assert isinstance(verdict, Enqueued), verdict
        torn = self.torn([row for row, _ in drawn]) if atomic else None
        if torn is not None:
            assert set(verdict.given) == {torn}, "L10"
            return
        self.took(verdict.given, drawn, inline=not command.flags & IN_OBJECT)

    def draw_messages(self, drawn: list[tuple[EnqueueRow, bytes]], *, flags: int) -> Enqueue:
        fields = {"bodies": b"".join(body for _, body in drawn)}
        if self.dice.random() < 0.5:
            fields = {"wal_id": self.new_object(), "size": 1_000, "created_ms": 1}
            flags |= IN_OBJECT
        packed = pack_messages(row for row, _ in drawn)
        return Enqueue(shard=self.id, packed=packed, keys=tuple(KEYS), flags=flags, **fields)

    def took(self, told: list[MessageGiven], drawn: list[tuple[EnqueueRow, bytes]], *, inline: bool) -> list[Message]:
        new = []
        for given, (row, body) in zip(told, drawn, strict=True):
            judged = self.model.judge(row, KEYS, self.model.config.max_payload_bytes + BODY_OVERHEAD)
            message = None if judged else self.model.add(row, KEYS, body, inline=inline)
            if isinstance(judged, tuple):
                assert given == (answers.DUPLICATE, *judged[1:]), (given, judged)
            elif message is None:
                assert REFUSALS[given.slot] == (judged or "dedup-full")
            else:
                assert given.slot >= 0, given
                assert given[1:] == message.ident
                assert message.ident not in self.idents, "DD2"
                self.idents.add(message.ident)
                message.slot = given.slot
                new.append(message)
        return new

    def prepare(self) -> None:
        """BA2, BA3: a batch that is not there yet."""
        drawn = [self.draw_row() for _ in range(self.dice.randrange(1, 5))]
        batch, home = self.dice.randbytes(16), self.dice.choice((0, 0, 7))
        part = self.draw_messages(drawn, flags=0)
        begun_ms = self.machine.timeline.running_ms
        verdict = self.do(Prepare(batch=batch, home=home, begun_ms=begun_ms, part=part))
        assert isinstance(verdict, Enqueued), verdict
        torn = self.torn([row for row, _ in drawn])
        if torn is not None:
            assert set(verdict.given) == {torn}, "L10"
            return
        self.model.prepare(batch, home, self.took(verdict.given, drawn, inline=not part.flags & IN_OBJECT))

    def decide(self) -> None:
        """BA1: about a batch that is prepared here, or about one of other domains."""
        here = [batch for batch, home in self.model.homes.items() if not home]
        batch = self.dice.choice([*here, *list(self.model.decisions)[-3:], self.dice.randbytes(16)])
        word = self.dice.choice((BatchWord.ABORT, BatchWord.COMMIT))
        verdict = self.do(Decide(batch=batch, begun_ms=self.machine.timeline.running_ms, word=word, shards=(self.id,)))
        assert verdict == Decided(commit=self.model.decisions.setdefault(batch, word is BatchWord.COMMIT)), "BA1"

    def finish(self) -> None:
        """BA4: it is there, or nothing is left of it; and only as it was decided, where that is known."""
        if not self.model.homes:
            return
        batch, home = self.dice.choice(list(self.model.homes.items()))
        commit = self.dice.random() < 0.5
        verdict = self.do(Finish(shard=self.id, batch=batch, commit=commit, rows=5))
        if not home and commit != self.model.decisions.get(batch, False):
            assert isinstance(verdict, Refused), verdict
            assert verdict.why is Why.STATE, "BA1"
            return
        assert verdict is DONE, verdict
        for message in self.model.finish(batch, commit=commit):
            if not commit and message.name is not None:
                self.idents.discard(message.ident)  # nobody was told; the same message may have it again
        assert self.do(Finish(shard=self.id, batch=batch, commit=not commit, rows=1)) is DONE, "again is harmless"

    def torn(self, rows: list[EnqueueRow]) -> MessageGiven | None:
        model, fresh, keyed, seen = self.model, 0, 0, set()
        newest = model.generations[-1] if model.generations else None
        current = newest and model.running - newest.begun_running < model.config.dedup_window_ms // 4
        for index, row in enumerate(rows):
            if model.judge(row, KEYS, model.config.max_payload_bytes + BODY_OVERHEAD) == "malformed":
                return MessageGiven(answers.TORN, index, 0, answers.MALFORMED)
            if row.key:
                key = KEYS[row.key - 1]
                if model.is_undecided(key, row.seq):
                    return MessageGiven(answers.TORN, index, 0, answers.UNDECIDED)
                if model.known(key, row.seq) or (row.key, row.seq) in seen:
                    continue
                seen.add((row.key, row.seq))
                keyed += 1
                ranges = runs(newest.taken.get(key, {0})) if current else 1
                if model.remembered() + keyed > model.config.max_dedup_keys or ranges + keyed > 4_096:
                    return MessageGiven(answers.TORN, index, 0, answers.DEDUP_FULL)
            fresh += 1
            if len(model.messages) + fresh > model.config.max_messages:
                return MessageGiven(answers.TORN, index, 0, answers.FULL)
        return None

    def new_object(self) -> bytes:
        self.writer.wal += 1
        return wal_id(LOG, self.writer.session, self.writer.wal)

    def lease(self) -> None:
        dice, nonce = self.dice, self.dice.randbytes(16)
        limit, visibility, holder = dice.randrange(1, 6), dice.choice((600, 5_000, 100_000)), dice.choice("ab")
        last = -(1 << 63) if self.mode is Mode.MAX else (1 << 63) - 1
        worst = last if dice.random() < 0.8 else dice.choice(EDGES)
        command = Lease(shard=self.id, visibility_ms=visibility, limit=limit, nonce=nonce, holder=holder, worst=worst)
        verdict = self.do(command)
        assert isinstance(verdict, Granted), verdict
        wanted = self.model.lease(limit, visibility, nonce, holder, worst)
        assert [m.arrival for m in verdict.messages] == [m.arrival for m in wanted], "L5"
        for granted, message in zip(verdict.messages, wanted, strict=True):
            assert (granted.slot, granted.priority, granted.attempts) == (
                message.slot, message.priority, message.attempts,
            )  # fmt: skip
            assert (granted.number, granted.begun_ms, granted.seq) == message.ident
            assert granted.body == (message.body if message.inline else None)
            assert granted.max_retries == message.retries
            assert granted.enqueued_ms == message.enqueued
            self.tokens.append((granted.slot, granted.arrival, nonce))

    def settle(self) -> None:
        if not self.tokens:
            return
        rows, notes = [], {}
        for index in range(self.dice.randrange(1, 4)):
            slot, arrival, nonce = self.dice.choice(self.tokens[-30:])
            if self.dice.random() < 0.1:
                nonce = self.dice.randbytes(16)
            kind = self.dice.choice((1, 1, 1, 2, 2, 3, 4, 5, 6, 9))
            argument = self.dice.choice((-1, 0, 100, 5_000)) if kind == 2 else self.dice.choice((0, 100, 5_000, 90_000))
            if self.dice.random() < 0.3:
                notes[index] = "it failed"
            rows.append((kind, slot, arrival, nonce, argument))
        self.settle_rows(rows, notes)

    def settle_rows(self, rows, notes) -> None:
        verdict = self.do(Settle(shard=self.id, packed=pack_settlements(rows), notes=notes))
        assert isinstance(verdict, Settled), verdict
        for index, (code, row) in enumerate(zip(verdict.codes, rows, strict=True)):
            allowed = self.model.settle(*row, notes.get(index))
            assert CODES[code] in allowed, (CODES[code], allowed, row)
            if index in verdict.left_ms and row[0] in (Settlement.EXTEND, Settlement.RENEW):
                assert verdict.left_ms[index] >= self.model.messages[row[2]].deadline - self.model.running - 90_000

    def tick(self) -> None:
        self.do(Tick(shard=self.id))
        self.model.tick()

    def refs(self, messages: list[Message]) -> tuple[MessageRef, ...]:
        return tuple(MessageRef(slot=message.slot, arrival=message.arrival) for message in messages)

    def some(self, most: int = 3) -> list[Message]:
        known = list(self.model.messages.values())
        return self.dice.sample(known, min(len(known), self.dice.randrange(1, most + 1)))

    def bury(self) -> None:
        chosen, force = self.some(), self.dice.random() < 0.5
        verdict = self.do(Bury(shard=self.id, messages=self.refs(chosen), force=force, note="poison"))
        assert isinstance(verdict, Buried), verdict
        told = [self.model.bury(message, force=force, note="poison") for message in chosen]
        assert [CODES[code] for code in verdict.codes] == told

    def replay(self) -> None:
        limit, keep = self.dice.randrange(1, 4), self.dice.random() < 0.5
        priority = self.dice.choice((None, None, 7))
        named = self.some(5) if self.dice.random() < 0.4 else []
        verdict = self.do(
            Replay(shard=self.id, messages=self.refs(named), limit=limit, keep_time=keep, priority=priority)
        )
        assert isinstance(verdict, Moved), verdict
        chosen = [message for message in named if message.state == "dead"] if named else self.model.dead()[:limit]
        assert verdict.count == len(chosen)
        self.model.replay(chosen, keep_time=keep, priority=priority)
        assert verdict.left == (0 if named else len(self.model.dead()))

    def bury_replay_nack(self) -> None:
        """A delayed message that is buried, comes back with its time and fails again: its first delay means nothing."""
        delayed = [message for message in self.model.of("delayed") if message.due > self.model.now + 400]
        if not delayed or not self.model.config.dead_letters:
            return
        chosen = [delayed[0]]
        verdict = self.do(Bury(shard=self.id, messages=self.refs(chosen)))
        assert isinstance(verdict, Buried)
        assert [CODES[code] for code in verdict.codes] == [self.model.bury(chosen[0], force=False, note="")]
        self.do(Replay(shard=self.id, messages=self.refs(chosen), keep_time=True))
        self.model.replay([m for m in chosen if m.state == "dead"], keep_time=True, priority=None)
        self.lease()
        token = next(
            (token for token in self.tokens if token[1] == chosen[0].arrival and chosen[0].nonce == token[2]), None
        )
        if token is not None:
            self.settle_rows([(Settlement.NACK, *token, 30_000)], {})

    def drop(self) -> None:
        named, expired = self.some(5), self.dice.random() < 0.5
        verdict = self.do(Drop(shard=self.id, messages=self.refs(named), expired=expired))
        assert isinstance(verdict, Moved), verdict
        ttl = self.model.config.message_ttl_ms
        if expired:
            old = ttl and not self.model.paused
            chosen = [
                m for m in named if m.state in ("ready", "delayed") and old and m.enqueued <= self.model.now - ttl
            ]
        else:
            chosen = [m for m in named if m.state == "dead"] if named else self.model.dead()
        assert verdict.count == len(chosen)
        for message in chosen:
            del self.model.messages[message.arrival]

    def purge(self) -> None:
        upto = max(1, self.model.next_arrival - self.dice.choice((0, 3, 10)))
        leased, dead = self.dice.random() < 0.3, self.dice.random() < 0.3
        states = {"ready", "delayed", *(["leased"] if leased else []), *(["dead"] if dead else [])}
        start = 0
        while start >= 0:
            verdict = self.do(
                Purge(shard=self.id, upto=upto, start=start, include_leased=leased, include_dead=dead, limit=7)
            )
            assert isinstance(verdict, Purged), verdict
            start = verdict.next_start
        for arrival in [a for a, m in self.model.messages.items() if a < upto and m.state in states]:
            del self.model.messages[arrival]

    def spill(self) -> None:
        chosen = [*self.some(5)]
        rows = [(m.slot, m.arrival, 7, len(m.body)) for m in chosen] + [(10**6, 1, 0, 0)]
        verdict = self.do(
            Spill(shard=self.id, packed=pack_spilled(rows), wal_id=self.new_object(), size=500, created_ms=1)
        )
        assert verdict == Spilled(named=len(chosen))
        for message in chosen:
            message.inline = False

    def reload(self) -> None:
        """K2: it goes on as if nothing had been."""
        dumped = checkpoint.dump(self.machine)
        self.tape.machine = checkpoint.load(dumped, type(self.machine))
        assert checkpoint.dump(self.machine) == dumped

    def alter(self) -> None:
        self.revision += 1
        fields = draw_config(self.dice)
        config = HeapConfig(**{
            name: getattr(fields if name in ("paused", "message_ttl_ms", "max_messages") else self.model.config, name)
            for name in HeapConfig.__struct_fields__
        })  # fmt: skip
        self.model.config = config
        self.configure()

    def configure(self) -> None:
        self.do(
            OpenShard(
                shard=self.id, heap_id=b"h" * 16, mode=self.mode, partitions=4, revision=self.revision,
                config=self.model.config,
            )
        )  # fmt: skip

    def jump(self) -> None:
        """Somebody's clock is ahead: moments come sooner, and what lasts does not."""
        self.jumpers += 1
        ahead = self.machine.time_ms + self.dice.choice((30_000, 600_000))
        self.tape.open(f"j{self.jumpers}", wall_ms=ahead).send(Close())

    # -- after each step ---------------------------------------------------

    def check(self) -> None:
        """L6, L12: counts, lists and rows agree, and so do the objects."""
        messages, model = self.shard.messages, self.model
        for name, state in STATES.items():
            assert messages.rows.counts[state] == len(model.of(name)), name
        assert len(messages.rows) == len(model.messages)
        assert messages.inline_bytes == sum(len(m.body) + BODY_COST for m in model.messages.values() if m.inline)
        assert list(messages.dead) == [message.slot for message in model.dead()]
        best = [entry >> 32 & 0xFFFF_FFFF_FFFF for entry in best_of(messages.ready, 1_000)]
        assert best == [message.arrival for message in model.ready()], "L5"
        assert len(messages.ready) == messages.rows.counts[State.READY]
        assert len(messages.delays) == messages.rows.counts[State.DELAYED]
        for message in model.messages.values():
            row = messages.rows.read(message.slot)
            assert (row.arrival, row.attempts, row.due_ms) == (message.arrival, message.attempts, message.due)
            assert row.attempts <= row.max_retries + 1, "L3"
            assert (message.slot in messages.bodies) == message.inline
            assert messages.notes.get(message.slot) == message.note
        assert list(self.shard.batches.all) == list(model.homes)
        assert len(self.shard.batches.named) == sum(message.name is not None for message in model.of("prepared"))
        named = sum(not message.inline for message in model.messages.values())
        assert sum(owner.rows for owner in self.machine.objects.all()) == named
        assert all((owner.id in self.machine.objects.dead) == (not owner.rows) for owner in self.machine.objects.all())
