"""Brokers that write about one group, and the commands that they send."""

from dray.machine.groups.classic import ClassicGroup
from dray.machine.groups.commands import (
    AssignClassic,
    EndPhase,
    JoinClassic,
    Removal,
    RemovalRow,
    RemoveMembers,
)
from dray.machine.groups.names import InstanceId, MemberId
from dray.machine.verdict import Verdict

from ..scribe import Tape, Writer

GROUP = "g"
RANGE = (("range", b"m"),)


class Stage:
    """One log of version 2, on which brokers write."""

    def __init__(self, brokers: int = 1) -> None:
        self.tape = Tape(version=2)
        self.brokers: list[Writer] = [self.tape.open(f"b{number}") for number in range(brokers)]

    @property
    def broker(self) -> Writer:
        return self.brokers[0]

    @property
    def group(self) -> ClassicGroup:
        found = self.tape.machine.groups.classic(GROUP)
        assert found is not None
        return found

    def join(
        self, member: str, *, new: bool = True, by: int = 0, instance: str | None = None, protocols=RANGE, **fields
    ) -> Verdict:  # fmt: skip
        return self.brokers[by].do(joining(member, new=new, instance=instance, protocols=protocols, **fields))

    def end_phase(self) -> Verdict:
        return self.broker.do(EndPhase(group=GROUP, tick=self.group.tick))

    def assign(self, member: str, given: dict[str, bytes] | None = None, *, by: int = 0) -> Verdict:
        return self.brokers[by].do(assigning(member, self.group.generation, given or {}))

    def leave(self, *members: str) -> Verdict:
        return self.broker.do(leaving(*members))

    def stable(self, *members: str) -> None:
        """These and nobody else are members, with an assignment each."""
        for member in members:
            self.join(member)
        while self.group.awaiting:
            self.end_phase()
        assert self.group.leader is not None
        self.assign(self.group.leader, {member: member.encode() for member in members})


def joining(member: str, *, new: bool = True, instance: str | None = None, protocols=RANGE, **fields) -> JoinClassic:
    given = {
        "must_know": False, "client_id": "c", "client_host": "/1.2.3.4", "session_ms": 10_000, "rebalance_ms": 60_000,
        "protocol_type": "consumer", "topics": ("t",), "delay_ms": 0, "max_size": 1_000, "tells_leader": True,
    } | fields  # fmt: skip
    return JoinClassic(
        group=GROUP, member=MemberId(member), new=new, instance=None if instance is None else InstanceId(instance),
        protocols=protocols, **given,
    )  # fmt: skip


def assigning(member: str, generation: int, given: dict[str, bytes], **fields) -> AssignClassic:
    named = {"instance": None, "protocol_type": "consumer", "protocol": "range"} | fields
    return AssignClassic(
        group=GROUP, member=MemberId(member), generation=generation,
        rows=tuple((MemberId(name), data) for name, data in given.items()), **named,
    )  # fmt: skip


def leaving(*members: str) -> RemoveMembers:
    rows = tuple(RemovalRow(member=MemberId(member)) for member in members)
    return RemoveMembers(group=GROUP, reason=Removal.LEFT, rows=rows)


def silent(
    member: str, home: int, reason: Removal = Removal.EXPIRED, since: int = -1, seen: int = -1
) -> RemoveMembers:  # fmt: skip
    row = RemovalRow(member=MemberId(member), home=home, since=since, seen=seen)
    return RemoveMembers(group=GROUP, reason=reason, rows=(row,))
