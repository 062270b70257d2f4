"""A classic group in a checkpoint, and as people see it.

The order of members decides who leads next, so it is written as it is.
"""

from typing import Final

from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.groups.roster import (
    ClassicMember,
    Completing,
    Empty,
    PendingMember,
    Preparing,
    Roster,
    Stable,
    State,
)
from dray.machine.names import SessionId
from dray.machine.noun import Fields, Shown
from dray.machine.packing import Reader, Row, Writer

_STATES: Final[tuple[type[State], ...]] = (Empty, Preparing, Completing, Stable)


def dump(group: Roster, out: Writer) -> None:
    out.values([
        group.round, group.tick, group.generation, group.revision, group.since_ms, group.protocol_type,
        *_maybe(group.protocol), *_maybe(group.leader), *_maybe_all(group.topics),
        len(group.members), len(group.pending), *_state(group.state),
    ])  # fmt: skip
    for member in group.members.values():
        out.values([
            member.id, *_maybe(member.instance), member.client_id, member.client_host, member.session_ms,
            member.rebalance_ms, *_maybe_all(member.topics), member.home, member.heard, member.assignment,
            member.joined, member.generation, [name for name, _ in member.protocols],
            [data for _, data in member.protocols],
        ])  # fmt: skip
    for name, pending in sorted(group.pending.items()):
        out.values([name, pending.home, pending.session_ms])


def load(group: Roster, source: Reader) -> None:
    """Fill a new group."""
    row = source.row()
    group.round, group.tick, group.generation = row.number(), row.number(), row.number()
    group.revision, group.since_ms, group.protocol_type = row.number(), row.number(), row.text()
    group.protocol = _text(row)
    leader = _text(row)
    group.leader = None if leader is None else MemberId(leader)
    group.topics = _texts(row)
    members, pending = row.number(), row.number()
    group.state = _load_state(row)
    for _ in range(members):
        member = _load_member(source.row())
        member.protocols = group.shared(member.protocols)
        group.enter(member)
        group.awaiting += group.waits(member)
    for _ in range(pending):
        row = source.row()
        name = MemberId(row.text())
        group.pending[name] = PendingMember(home=SessionId(row.number()), session_ms=row.number())


def _load_member(row: Row) -> ClassicMember:
    name, instance = MemberId(row.text()), _text(row)
    client_id, client_host, session_ms, rebalance_ms = row.text(), row.text(), row.number(), row.number()
    topics, home, heard, assignment = _texts(row), SessionId(row.number()), row.number(), row.raw()
    joined, generation = row.number(), row.number()
    return ClassicMember(
        id=name, instance=None if instance is None else InstanceId(instance), client_id=client_id,
        client_host=client_host, session_ms=session_ms, rebalance_ms=rebalance_ms, topics=topics, home=home,
        heard=heard, assignment=assignment, joined=joined, generation=generation,
        protocols=tuple(zip(row.texts(), row.raws(), strict=True)),
    )  # fmt: skip


def show(group: Roster) -> Fields:
    return {
        "kind": "classic", "state": type(group.state).__name__, "generation": group.generation,
        "protocolType": group.protocol_type, "protocol": group.protocol, "leader": group.leader,
        "topics": None if group.topics is None else list(group.topics), "stateTimestampMs": group.since_ms,
        "members": [
            {
                "memberId": member.id, "instanceId": member.instance, "clientId": member.client_id,
                "clientHost": member.client_host, "sessionTimeoutMs": member.session_ms,
                "rebalanceTimeoutMs": member.rebalance_ms, "home": member.home, "waits": group.waits(member),
            }
            for member in group.members.values()
        ],
        "pending": list[Shown](sorted(group.pending)),
    }  # fmt: skip


def _state(state: State) -> list[int]:
    match state:
        case Preparing():
            more = [int(state.initial), int(state.newcomers), state.delay_ms, state.left_ms]
        case _:
            more = [0, 0, 0, 0]
    return [_STATES.index(type(state)), *more]


def _load_state(row: Row) -> State:
    number, initial, newcomers, delay_ms, left_ms = (row.number() for _ in range(5))
    if _STATES[number] is Preparing:
        return Preparing(initial=bool(initial), newcomers=bool(newcomers), delay_ms=delay_ms, left_ms=left_ms)
    return _STATES[number]()


def _maybe(text: str | None) -> list[int | str]:
    return [0, ""] if text is None else [1, text]


def _maybe_all(texts: tuple[str, ...] | None) -> list[int | list[str]]:
    return [0, []] if texts is None else [1, list(texts)]


def _text(row: Row) -> str | None:
    there, text = row.number(), row.text()
    return text if there else None


def _texts(row: Row) -> tuple[str, ...] | None:
    there, texts = row.number(), row.texts()
    return tuple(texts) if there else None
