"""Brokers: who serves clients, and where.

Invariants
    M8  A broker record lives exactly as long as its session, and a broker id
        belongs to one live session at a time. A name that asks for an id
        keeps the one it was given.
    M15  Since version 2 a name that no live broker has had for a week of
         machine time is forgotten, and its id is free; while time may have
         jumped, none is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from dray.machine.command import Command, Configs, Int32, Millis, Name, Packed, Part, Text
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import SessionId
from dray.machine.noun import Fields, Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.sessions import Sessions
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.verdict import Verdict, Why, refused

FIRST_GIVEN_ID: Final = 1
MAX_NAMES: Final = 10_000
DRAINING: Final = 2
"""The version from which on a broker can say that it is about to stop."""
FORGETTING: Final = 2
"""The version from which on names are forgotten (M15)."""
KEPT_MS: Final = 7 * 24 * 3_600_000
"""How long a name may be gone."""
SLICE: Final = 100
"""Names that one registration looks at and forgets."""
BROKER_KEY: Final = Shape("cluster/%/brokers/#")


class Listener(Part, frozen=True, kw_only=True):
    """Where clients reach a broker."""

    name: Name
    host: Name
    port: Annotated[int, Meta(ge=0, le=0xFFFF)]


class RegisterBroker(Packed, frozen=True, kw_only=True):
    """Be a broker for as long as the entry's session lives."""

    number = 8
    fields_since: ClassVar[Mapping[str, int]] = {"draining": DRAINING}

    broker_id: Int32
    """-1: the machine gives one, the same for the same session name."""
    zone: Text
    rack: Text
    listeners: Annotated[tuple[Listener, ...], Meta(max_length=32)]
    started_ms: Millis
    build: Text = ""
    capacity: Configs = msgspec.field(default_factory=dict)
    draining: bool = False
    """It is about to stop: clients should ask others, and be told so by everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered(Verdict):
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One live broker."""

    broker_id: int
    session: SessionId
    name: str
    zone: str
    rack: str
    listeners: tuple[Listener, ...]
    started_ms: int
    build: str
    capacity: dict[str, str]
    draining: bool


class Brokers:
    """The live brokers of a cluster, kept in domain 0."""

    name: ClassVar[str] = "brokers"
    since: ClassVar[int] = 1
    commands: ClassVar[tuple[type[Command], ...]] = (RegisterBroker,)

    def __init__(self, head: Head, sessions: Sessions, timeline: Timeline) -> None:
        self._head = head
        self._sessions = sessions
        self._timeline = timeline
        self.live: dict[int, Broker] = {}
        self._given: dict[str, int] = {}
        """The ids that the machine gave, by session name."""
        self._gone_ms: dict[str, int] = {}
        """Since when such a name is not live (M15)."""

    def all(self) -> list[Broker]:
        """By broker id."""
        return [broker for _, broker in sorted(self.live.items())]

    def of_session(self, session: SessionId) -> Broker | None:
        return next((broker for broker in self.live.values() if broker.session == session), None)

    def apply(self, step: Step, command: Command) -> Verdict:
        if not isinstance(command, RegisterBroker):
            return stray(command)
        if not self._head.is_catalog:
            return refused(Why.FOREIGN, "the catalog is domain 0")
        return self._register(step, command)

    def session_ended(self, step: Step, session: SessionId) -> None:
        gone = self._drop(session)  # M8
        if gone is None:
            return
        step.catalog_changed = True
        if gone.name in self._given and self._head.version >= FORGETTING:
            self._gone_ms[gone.name] = self._timeline.time_ms

    def _register(self, step: Step, command: RegisterBroker) -> Verdict:
        writer = self._sessions.live[step.session]
        if self._head.version >= FORGETTING and not self._timeline.paused:
            self._forget(step, self._timeline.time_ms)
        if command.broker_id < -1:
            return refused(Why.MALFORMED, "a broker id is not negative")
        wanted = command.broker_id if command.broker_id >= 0 else self._given.get(writer.name, -1)
        holder = self.live.get(wanted)
        if holder is not None and holder.session != writer.id:
            return refused(Why.LIVE, "a live broker has that id")  # M8
        if wanted < 0:
            if len(self._given) >= MAX_NAMES:
                return refused(Why.LIMIT, "too many broker ids were given")
            wanted = self._free_id()
            self._given[writer.name] = wanted
        self._drop(writer.id)
        self._gone_ms.pop(writer.name, None)
        self.live[wanted] = Broker(
            broker_id=wanted, session=writer.id, name=writer.name, zone=command.zone, rack=command.rack,
            listeners=command.listeners, started_ms=command.started_ms, build=command.build,
            capacity=dict(sorted(command.capacity.items())), draining=command.draining,
        )  # fmt: skip
        step.catalog_changed = True
        step.given.append(wanted)
        return BrokerRegistered(broker_id=wanted)

    def _drop(self, session: SessionId) -> Broker | None:
        """The session is over (M8)."""
        broker = self.of_session(session)
        if broker is not None:
            del self.live[broker.broker_id]
        return broker

    def _forget(self, step: Step, now_ms: int) -> None:
        """Names that were gone for long enough, the oldest first (M15); those that went under version 1 go now."""
        due = sorted((gone_ms, name) for name, gone_ms in self._gone_ms.items() if now_ms - gone_ms >= KEPT_MS)
        for _, name in due[: min(SLICE, step.spare)]:
            del self._gone_ms[name], self._given[name]
            step.spare -= 1
        known = {*self._gone_ms, *(broker.name for broker in self.live.values())}
        for name in sorted(self._given.keys() - known)[: min(SLICE, step.spare)]:
            self._gone_ms[name] = now_ms
            step.spare -= 1

    def _free_id(self) -> int:
        taken = {*self.live, *self._given.values()}
        candidate = FIRST_GIVEN_ID
        while candidate in taken:
            candidate += 1
        return candidate

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self._given), len(self.live)])
        for name, number in sorted(self._given.items()):
            out.values([name, number, *([self._gone_ms.get(name, -1)] if version >= FORGETTING else ())])
        for broker in self.all():
            out.values([
                broker.broker_id, broker.session, broker.name, broker.zone, broker.rack, broker.started_ms,
                broker.build, list(broker.capacity), list(broker.capacity.values()),
                [entry.name for entry in broker.listeners], [entry.host for entry in broker.listeners],
                [entry.port for entry in broker.listeners], *([broker.draining] if version >= DRAINING else ()),
            ])  # fmt: skip

    def load(self, source: Reader, version: int) -> None:
        given, live = source.ints(2)
        for _ in range(given):
            row = source.row()
            name = row.text()
            self._given[name] = row.number()
            gone_ms = row.number() if version >= FORGETTING else -1
            if gone_ms >= 0:
                self._gone_ms[name] = gone_ms
        for _ in range(live):
            row = source.row()
            number, session, name, zone, rack = row.number(), row.number(), row.text(), row.text(), row.text()
            started_ms, build = row.number(), row.text()
            capacity = dict(zip(row.texts(), row.texts(), strict=True))
            addresses = zip(row.texts(), row.texts(), row.numbers(), strict=True)
            self.live[number] = Broker(
                broker_id=number, session=SessionId(session), name=name, zone=zone, rack=rack,
                listeners=tuple(Listener(name=kind, host=host, port=port) for kind, host, port in addresses),
                started_ms=started_ms, build=build, capacity=capacity,
                draining=version >= DRAINING and bool(row.number()),
            )  # fmt: skip

    def show(self, prefix: str) -> Listing:
        for broker in self.all():
            yield BROKER_KEY.build(self._head.cluster_id, broker.broker_id), _fields(broker)


def _fields(broker: Broker) -> Fields:
    return {
        "brokerId": broker.broker_id, "session": broker.session, "name": broker.name, "zoneId": broker.zone,
        "rack": broker.rack, "startedAt": broker.started_ms, "buildInfo": broker.build,
        "advertisedListeners": [
            {"name": listener.name, "host": listener.host, "port": listener.port} for listener in broker.listeners
        ],
        "capacityHints": dict(broker.capacity), "draining": broker.draining,
    }  # fmt: skip
