"""What the clients of one heap were told, held against each other.

Checked as it happens, by what a client can know:

    lost-enqueue          a message that was taken is never delivered
    phantom-pop           a message that nobody sent
    wrong-body            another payload than was sent
    double-lease          two consumers hold one message at once
    delivered-after-ack   a pop that began after an ack was answered
    stale-token-accepted  a token settles although a newer one was given out
    dedup-two-ids         one dedup key has two ids, or two keys have one
    credit-overrun        more messages than were asked for
    over-retry            more attempts than retries allow

Times are those of the client: a lease lasts at least from its receipt until
its duration after the pop was asked for.
"""

from dataclasses import dataclass, field

from dray.heaps.consumers import Delivery
from dray.heaps.ids import LeaseToken, MessageId, format_id
from dray.sim.world import World


@dataclass(slots=True)
class _Hold:
    """One delivery, as its consumer knows it."""

    token: LeaseToken
    asked: float
    received: float
    sure_until: float
    attempts: int = 0
    """The next delivery that begins after this one has at least so many."""
    given_up: bool = False
    tried: bool = False


@dataclass(slots=True)
class _Known:
    key: str
    holds: list[_Hold] = field(default_factory=list)
    acked_at: float | None = None
    """When a consumer was told that its ack is durable."""
    maybe_acked: bool = False


class JobLedger:
    """Everything that is known of a heap from outside."""

    def __init__(self, world: World, *, retries: int) -> None:
        self._world = world
        self._retries = retries
        self._payloads: dict[str, bytes] = {}
        self._ids: dict[str, MessageId] = {}
        self._known: dict[MessageId, _Known] = {}
        self.taken: set[str] = set()
        """Keys whose producers were told that they are durable."""
        self.deliveries = 0
        self.acks = 0

    # -- producers ---------------------------------------------------------

    def asks(self, key: str, payload: bytes) -> None:
        self._payloads[key] = payload

    def took(self, key: str, identity: MessageId) -> None:
        self.taken.add(key)
        self._is_id_of(key, identity)

    def _is_id_of(self, key: str, identity: MessageId) -> None:
        known = self._known.setdefault(identity, _Known(key))
        first = self._ids.setdefault(key, identity)
        same = first == identity and known.key == key
        self._world.check(same, "dedup-two-ids", key=key, id=format_id(identity), first=format_id(first))

    # -- consumers ---------------------------------------------------------

    def popped(self, found: list[Delivery], *, credits: int, asked: float, lease_s: float) -> None:
        now = self._world.loop.time()
        self._world.check(len(found) <= credits, "credit-overrun", credits=credits, got=len(found))
        for delivery in found:
            self.deliveries += 1
            self._delivered(delivery, asked, now, lease_s)

    def _delivered(self, delivery: Delivery, asked: float, now: float, lease_s: float) -> None:
        payload, identity = delivery.body.payload, delivery.id
        key = payload.decode(errors="replace").partition(":")[0]
        self._world.check(key in self._payloads, "phantom-pop", id=format_id(identity))
        self._world.check(self._payloads[key] == payload, "wrong-body", key=key)
        self._is_id_of(key, identity)
        known = self._known[identity]
        late = known.acked_at is not None and asked > known.acked_at
        self._world.check(not late, "delivered-after-ack", key=key, acked=known.acked_at, asked=asked)
        for hold in known.holds:
            within = hold.received <= asked and now < hold.sure_until
            self._world.check(hold.given_up or not within, "double-lease", key=key, until=hold.sure_until, now=now)
        attempts = delivery.message.attempts
        self._world.check(attempts <= self._retries, "over-retry", key=key, attempts=attempts)
        least = max((hold.attempts for hold in known.holds if hold.received <= asked), default=0)
        self._world.check(attempts >= least, "attempt-jump", key=key, attempts=attempts, least=least)
        known.holds.append(_Hold(delivery.token, asked, now, asked + lease_s, attempts))

    def settles(self, delivery: Delivery, *, ack: bool) -> None:
        """A settlement is on its way: from now on the lease may be over."""
        known = self._known[delivery.id]
        for hold in known.holds:
            if hold.token == delivery.token:
                hold.given_up = True
        known.maybe_acked = known.maybe_acked or ack

    def acked(self, delivery: Delivery, *, asked: float) -> None:
        """A consumer was told that its ack is durable."""
        known = self._known[delivery.id]
        own = next(hold for hold in known.holds if hold.token == delivery.token)
        newer = [hold for hold in known.holds if hold.asked > own.received and hold.received < asked]
        self._world.check(own.tried or not newer, "stale-token-accepted", key=known.key)
        self.acks += 1
        if known.acked_at is None:
            known.acked_at = self._world.loop.time()

    def failed(self, delivery: Delivery) -> None:
        """A consumer was told that its nack is durable: an attempt was counted, for who asks from now on."""
        now = self._world.loop.time()
        for hold in self._known[delivery.id].holds:
            if hold.token == delivery.token:
                hold.attempts, hold.received = delivery.message.attempts + 1, now

    def tried(self, delivery: Delivery) -> None:
        """An ack was sent and not answered: it may be repeated with success."""
        for hold in self._known[delivery.id].holds:
            hold.tried = hold.tried or hold.token == delivery.token

    # -- the end -----------------------------------------------------------

    def unaccounted(self) -> list[str]:
        """Keys that were taken, and that nobody has acked, or may have."""
        ended = {known.key for known in self._known.values() if known.acked_at is not None or known.maybe_acked}
        return sorted(self.taken - ended)
