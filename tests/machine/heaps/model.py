"""A heap of lists and dicts, sorted each time: what a shard must agree with."""

from dataclasses import dataclass, field

from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.packets import RELATIVE, EnqueueRow, Settlement
from dray.machine.heaps.timers import backoff_ms
from dray.machine.heaps.tombs import KEPT_MS

BUCKET = 512


@dataclass
class Message:
    slot: int
    arrival: int
    row: EnqueueRow
    body: bytes
    retries: int
    priority: int
    enqueued: int
    ident: tuple[int, int, int]
    inline: bool
    state: str = "ready"
    due: int = 0
    attempts: int = 0
    died: int = 0
    nonce: bytes = b""
    deadline: int = 0
    granted: int = 0
    holder: str = ""
    entered: int = 0
    """When it came into its bucket, by a counter."""
    last: tuple[bytes, int] | None = None
    note: str | None = None
    name: tuple[bytes, int] | None = None
    batch: bytes = b""


@dataclass
class Generation:
    begun_running: int
    begun: int
    numbers: dict[bytes, int] = field(default_factory=dict)
    taken: dict[bytes, set[int]] = field(default_factory=dict)


def runs(taken: set[int]) -> int:
    return sum(seq - 1 not in taken for seq in taken)


class Model:
    """Knows nothing of rows, heaps, buckets or ranges."""

    def __init__(self, mode: Mode, config: HeapConfig, partitions: int) -> None:
        self.mode, self.config, self.partitions = mode, config, partitions
        self.messages: dict[int, Message] = {}
        self.generations: list[Generation] = []
        self.acks: dict[int, tuple[bytes, int]] = {}
        self.next_arrival = 1
        self.next_number = 1
        self.anonymous = 0
        self.anonymous_seq = 0
        self.counter = 0
        self.now = self.running = 0
        self.paused = False
        self.homes: dict[bytes, int] = {}
        """Undecided batches, and where each is decided."""
        self.decisions: dict[bytes, bool] = {}

    def at(self, now: int, running: int, paused: bool) -> None:
        self.now, self.running, self.paused = now, running, paused

    def count(self) -> int:
        self.counter += 1
        return self.counter

    def of(self, state: str) -> list[Message]:
        return [message for message in self.messages.values() if message.state == state]

    def ready(self) -> list[Message]:
        sign = -1 if self.mode is Mode.MAX else 1
        return sorted(self.of("ready"), key=lambda message: (sign * message.priority, message.arrival))

    def dead(self) -> list[Message]:
        return sorted(self.of("dead"), key=lambda message: message.died)

    # -- enqueue -----------------------------------------------------------

    def known(self, key: bytes, seq: int) -> tuple[int, int] | None:
        window = self.config.dedup_window_ms
        for generation in reversed(self.generations):
            young = generation.begun_running > self.running - window - window // 4
            if young and seq in generation.taken.get(key, ()):
                return generation.numbers[key], generation.begun
        return None

    def remembered(self) -> int:
        return sum(runs(taken) for generation in self.generations for taken in generation.taken.values())

    def take(self, key: bytes, seq: int) -> tuple[int, int] | None:
        newest = self.generations[-1] if self.generations else None
        if newest is not None and self.running - newest.begun_running >= self.config.dedup_window_ms // 4:
            newest = None
        taken = set() if newest is None else newest.taken.get(key, set())
        grows = not (taken and runs(taken) == 1 and seq == max(taken) + 1)
        if grows and self.remembered() >= self.config.max_dedup_keys:
            return None
        if newest is None:
            newest = Generation(self.running, self.now)
            self.generations.append(newest)
        if key not in newest.numbers:
            newest.numbers[key] = self.next_number
            self.next_number += 1
        newest.taken.setdefault(key, set()).add(seq)
        return newest.numbers[key], newest.begun

    def judge(self, row: EnqueueRow, keys: list[bytes], most_body: int) -> str | tuple | None:
        bad = row.partition >= self.partitions or row.key > len(keys) or row.wait < 0 or row.length > most_body
        if bad or row.seq >= 1 << 36 or not -1 <= row.retries <= 32_000:
            return "malformed"
        if row.key:
            if self.is_undecided(keys[row.key - 1], row.seq):
                return "undecided"
            known = self.known(keys[row.key - 1], row.seq)
            if known is not None:
                return ("duplicate", *known, row.seq)
        return "full" if len(self.messages) >= self.config.max_messages else None

    def is_undecided(self, key: bytes, seq: int) -> bool:
        return any(message.name == (key, seq) for message in self.of("prepared"))

    def add(self, row: EnqueueRow, keys: list[bytes], body: bytes, *, inline: bool) -> Message | None:
        """None: no more can be remembered."""
        if row.key:
            known = self.take(keys[row.key - 1], row.seq)
            if known is None:
                return None
            ident = (*known, row.seq)
        else:
            if not self.anonymous:
                self.anonymous = self.next_number
                self.next_number += 1
            ident = (self.anonymous, self.now, self.anonymous_seq)
            self.anonymous_seq += 1
        message = Message(
            slot=-1, arrival=self.next_arrival, row=row, body=body, priority=row.priority, enqueued=self.now,
            retries=self.config.max_retries if row.retries < 0 else row.retries, ident=ident, inline=inline,
            name=(keys[row.key - 1], row.seq) if row.key else None,
        )  # fmt: skip
        self.next_arrival += 1
        self.messages[message.arrival] = message
        due = (self.now + row.wait if row.flags & RELATIVE else row.wait) if row.wait else 0
        self.come_back(message, due)
        return message

    # -- batches -----------------------------------------------------------

    def prepare(self, batch: bytes, home: int, messages: list[Message]) -> None:
        """Messages that were added just now are not there yet."""
        for message in messages:
            message.state, message.batch = "prepared", batch
        if messages:
            self.homes[batch] = home

    def finish(self, batch: bytes, *, commit: bool) -> list[Message]:
        del self.homes[batch]
        parts = [message for message in self.of("prepared") if message.batch == batch]
        for message in parts:
            if commit:
                self.come_back(message, message.due)
                continue
            del self.messages[message.arrival]
            if message.name is not None:
                self.give_back(*message.name)
        return parts

    def give_back(self, key: bytes, seq: int) -> None:
        generation = next((g for g in reversed(self.generations) if seq in g.taken.get(key, ())), None)
        if generation is None:
            return  # it was in doubt for longer than it is remembered
        generation.taken[key].remove(seq)
        if not generation.taken[key]:
            del generation.taken[key], generation.numbers[key]

    # -- deliveries --------------------------------------------------------

    def come_back(self, message: Message, due: int) -> None:
        message.state, message.due = ("delayed", due) if due > self.now else ("ready", 0)

    def fail(self, message: Message, delay: int, *, final: bool = False) -> str:
        if delay < 0:
            delay = backoff_ms(self.config, message.arrival, message.attempts)
            assert 0 <= delay <= min(self.config.backoff_cap_ms, self.config.backoff_base_ms << message.attempts)
        message.attempts += 1
        if final or message.attempts > message.retries:
            return self.die(message)
        self.come_back(message, self.now + delay)
        return "done"

    def die(self, message: Message) -> str:
        if not self.config.dead_letters:
            del self.messages[message.arrival]
        else:
            message.state, message.due, message.died = "dead", self.now, self.count()
        return "died"

    def wake(self) -> None:
        for message in self.of("delayed"):
            if message.due <= self.now:
                message.state, message.due = "ready", 0
        over = [m for m in self.of("leased") if m.deadline // BUCKET < self.running // BUCKET]
        for message in sorted(over, key=lambda m: (m.deadline // BUCKET, m.entered)):
            assert self.running >= message.deadline
            self.fail(message, -1)

    def tick(self) -> None:
        self.wake()
        window = self.config.dedup_window_ms
        self.generations = [g for g in self.generations if g.begun_running > self.running - window - window // 4]
        if not self.paused:
            for message in self.dead():
                if message.due <= self.now - self.config.retention_ms:
                    del self.messages[message.arrival]

    def lease(self, limit: int, visibility: int, nonce: bytes, holder: str, worst: int) -> list[Message]:
        self.wake()
        held = self.of("leased")
        room = min(
            0 if self.config.paused else limit, self.config.max_inflight - len(held),
            self.config.max_leases_per_consumer - sum(message.holder == holder for message in held),
        )  # fmt: skip
        granted: list[Message] = []
        for message in self.ready():
            too_bad = message.priority < worst if self.mode is Mode.MAX else message.priority > worst
            if len(granted) >= room or too_bad:
                break
            ttl = self.config.message_ttl_ms
            if ttl and not self.paused and message.enqueued <= self.now - ttl:
                del self.messages[message.arrival]
                continue
            message.state, message.nonce, message.holder = "leased", nonce, holder
            message.deadline = self.running + min(max(visibility, 1_000), self.config.max_lease_ms)
            message.granted, message.entered, message.last = self.running, self.count(), None
            granted.append(message)
        return granted

    def settle(self, kind: int, slot: int, arrival: int, nonce: bytes, argument: int, note: str | None) -> set[str]:
        """What may be answered: an ack may be forgotten after a while."""
        message = self.messages.get(arrival)
        live = message is not None and message.state == "leased" and message.slot == slot and message.nonce == nonce
        if message is None or not live or self.running >= message.deadline:
            return self.settled_before(kind, slot, arrival, nonce)
        if kind == Settlement.ACK:
            del self.messages[arrival]
            self.acks[arrival] = (nonce, self.running)
            return {"done"}
        if kind in (Settlement.EXTEND, Settlement.RENEW):
            wanted = (message.deadline if kind == Settlement.EXTEND else self.running) + argument
            later = max(message.deadline, min(wanted, message.granted + self.config.max_lease_ms))
            if later != message.deadline:
                message.deadline, message.entered = later, self.count()
            return {"done"}
        if kind not in (Settlement.NACK, Settlement.RELEASE, Settlement.REJECT):
            return {"gone"}
        message.last = (nonce, kind)
        message.note = note or message.note
        if kind == Settlement.RELEASE:
            self.come_back(message, self.now + max(0, argument))
            return {"done"}
        return {self.fail(message, argument, final=kind == Settlement.REJECT)}

    def settled_before(self, kind: int, slot: int, arrival: int, nonce: bytes) -> set[str]:
        if kind == Settlement.ACK and arrival in self.acks:
            winner, when = self.acks[arrival]
            known = "already" if winner == nonce else "lost"
            return {known} if self.running - when < KEPT_MS else {known, "lost"}
        message = next((m for m in self.messages.values() if m.slot == slot), None)
        if message is not None and message.last == (nonce, kind):
            return {"already"}
        return {"lost"} if 0 < arrival < self.next_arrival else {"gone"}

    # -- operators ---------------------------------------------------------

    def bury(self, message: Message, *, force: bool, note: str) -> str:
        if message.state == "prepared":
            return "gone"
        if message.state == "dead":
            return "already"
        if message.state == "leased" and not force:
            return "lost"
        message.note = note or message.note
        self.die(message)
        return "done"

    def replay(self, chosen: list[Message], *, keep_time: bool, priority: int | None) -> None:
        for message in chosen:
            if not keep_time:
                del self.messages[message.arrival]
                message.arrival, message.enqueued = self.next_arrival, self.now
                self.next_arrival += 1
                self.messages[message.arrival] = message
            if priority is not None:
                message.priority = priority
            message.state, message.due, message.attempts, message.last, message.note = "ready", 0, 0, None, None
