"""Mistakes about what may be deleted."""

from collections.abc import Iterable
from typing import Final

from dray.machine.garbage import Objects
from dray.machine.names import SessionId, WalId, parse_wal_id
from dray.machine.sessions import Open, Sessions
from dray.machine.step import Step
from dray.machine.streams import Streams
from dray.objects.paths import WalName
from dray.objects.port import ObjectInfo
from dray.retention.orphans import Domain, Findings, Orphans, Suspect


def id_from_nonce(self: Sessions, command: Open) -> SessionId:
    """The session id is drawn, not counted."""
    number = SessionId(1 + int.from_bytes(command.nonce[:3], "little"))
    self.newest = max(self.newest, number)
    return number


def owns_any_session(self: Streams, name: WalId, session: SessionId) -> bool:
    """Objects of older sessions may be committed."""
    return parse_wal_id(name).log_id == self._head.log_id


def sorts_by_session_alone(
    self: Orphans, swept: dict[int, Domain], info: ObjectInfo, findings: Findings, suspects: dict[int, list[Suspect]]
) -> None:
    """The sweep does not look at the log id."""
    name = WalName.parse(info.path)
    parts, domain = parse_wal_id(WalId(name.wal_id)), swept.get(name.domain)
    if domain is not None and parts.session in domain.due:
        suspect = Suspect(info=info, session=parts.session, counter=parts.counter)
        suspects.setdefault(name.domain, []).append(suspect)


_RELEASE: Final = Objects.release


def release_too_much(self: Objects, step: Step, owners: Iterable[int]) -> None:
    """Where an object has two rows or more, one that goes takes another with it."""
    more = []
    for number in owners:
        more.append(number)
        block = self._blocks[number >> 6]
        if block.rows[number & 63] - more.count(number) == 1:
            more.append(number)
    _RELEASE(self, step, [n for n in more if self._blocks[n >> 6].rows[n & 63] > 0])
