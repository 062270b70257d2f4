"""Who may be taken out of a group, and on whose word.

Invariants
    G4  A member is removed for silence only on the word of its home, or of
        anyone once that home has ended, naming that home.
"""

from dray.machine.groups import told
from dray.machine.groups.codes import GroupCode
from dray.machine.groups.commands import Removal, RemovalRow
from dray.machine.groups.group import Moment, is_late
from dray.machine.groups.names import MemberId
from dray.machine.groups.roster import ClassicMember, Roster
from dray.machine.names import SessionId


def may_judge(moment: Moment, home: SessionId, named: SessionId) -> bool:
    """Whether an entry may say that nobody hears a member of this home (G4)."""
    return home == named and (home == moment.session or home not in moment.live)


def judge(group: Roster, moment: Moment, reason: Removal, row: RemovalRow) -> ClassicMember | MemberId | GroupCode:
    """The member or the given id that goes, or why nobody does."""
    match reason:
        case Removal.LEFT:
            return _leaving(group, row)
        case Removal.PENDING:
            pending = group.pending.get(row.member)
            if pending is None:
                return GroupCode.UNKNOWN_MEMBER
            return row.member if may_judge(moment, pending.home, row.home) else GroupCode.MOVED
        case Removal.EXPIRED | Removal.UNSYNCED:
            return _silent(group, moment, row, in_generation=reason is Removal.UNSYNCED)
        case _:
            return GroupCode.MOVED


def _leaving(group: Roster, row: RemovalRow) -> ClassicMember | MemberId | GroupCode:
    if row.member in group.pending:
        return row.member
    if row.member:
        return told.find(group, row.member, row.instance)
    holder = None if row.instance is None else group.statics.get(row.instance)
    return GroupCode.UNKNOWN_MEMBER if holder is None else group.members[holder]


def _silent(group: Roster, moment: Moment, row: RemovalRow, *, in_generation: bool) -> ClassicMember | GroupCode:
    member = group.members.get(row.member)
    if member is None:
        return GroupCode.UNKNOWN_MEMBER
    if in_generation and row.since != group.generation:
        return GroupCode.MOVED
    if group.waits(member) or not may_judge(moment, member.home, row.home) or is_late(member, row.seen):  # G4, G10
        return GroupCode.MOVED
    return member
