"""Consumer groups: stored offsets and ownership.

    lost-commit, commit-regress, zombie-commit-accepted, two-owners

The offset of a group and partition is a register: a read returns the value of
a commit that no other confirmed commit has surely replaced. Members may
commit lower offsets; only the system may not go back by itself.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from dray.testing.history.anomalies import Anomaly, Findings
from dray.testing.history.events import At, Commit, Committed, Partition, Rebalanced
from dray.testing.history.evidence import ids
from dray.testing.history.timeline import History, Op, Status

NONE = -1
"""What `committed` answers where nothing was committed."""


@dataclass(slots=True)
class _Register:
    commits: list[Op] = field(default_factory=list)
    """All that may have been taken."""
    confirmed: list[Op] = field(default_factory=list)
    """Those that surely were, by this life of the topic."""
    reads: list[Op] = field(default_factory=list)


def check_groups(history: History, findings: Findings) -> None:
    for (group, tp, _), register in _registers(history).items():
        where = f"{group} {tp}"
        _check_reads(register, where, findings)
        _check_steps_back(register, where, findings)
    _check_zombies(history, findings)
    _check_owners(history, findings)


def _registers(history: History) -> dict[tuple[str, Partition, int], _Register]:
    registers: dict[tuple[str, Partition, int], _Register] = {}
    for op in history.ops:
        call = op.call
        if not isinstance(call, Commit | Committed) or op.status is Status.FAIL:
            continue
        lives = history.lives_of(call.tp, op.start_ns, op.end_ns)
        for life in lives:
            register = registers.setdefault((call.group, call.tp, life.number), _Register())
            if isinstance(call, Commit):
                register.commits.append(op)
                if op.status is Status.OK and len(lives) == 1:
                    register.confirmed.append(op)
            elif op.status is Status.OK and len(lives) == 1 and life.survives:
                register.reads.append(op)
    return registers


def _check_reads(register: _Register, where: str, findings: Findings) -> None:
    confirmed = sorted(register.confirmed, key=lambda op: op.end_ns)
    # Of the commits confirmed so far, the one that began last: what ended before it began is replaced.
    newest_of = list(accumulate(confirmed, _later))
    for read in register.reads:
        index = bisect_left(confirmed, read.start_ns, key=lambda op: op.end_ns)
        newest = newest_of[index - 1] if index else None
        if newest is not None and _written(newest) == _read(read):
            continue
        possible = {
            _written(op)
            for op in register.commits
            if op.start_ns <= read.end_ns and (newest is None or op.end_ns >= newest.start_ns)
        }
        if newest is None:
            possible.add(NONE)
        if _read(read) in possible:
            continue
        shown = (read,) if newest is None else (newest, read)
        findings.add(
            Anomaly.LOST_COMMIT,
            where,
            f"{_read(read)} was read, {', '.join(map(str, sorted(possible)))} could be",
            ops=ids(*shown),
            t_ns=read.start_ns,
            span_ns=read.start_ns - shown[0].start_ns,
        )


def _check_steps_back(register: _Register, where: str, findings: Findings) -> None:
    """Two reads, one after the other, go back only if some commit of the lower value can lie between."""
    highest: Op | None = None
    reads = sorted(register.reads, key=lambda op: op.end_ns)
    for second in sorted(register.reads, key=lambda op: op.start_ns):
        while reads and reads[0].end_ns < second.start_ns:
            first = reads.pop(0)
            if highest is None or _read(first) >= _read(highest):
                highest = first
        if highest is None or _read(second) >= _read(highest):
            continue
        if any(
            _written(op) == _read(second) and op.end_ns >= highest.start_ns and op.start_ns <= second.end_ns
            for op in register.commits
        ):
            highest = None  # a member went back; compare with what is read from here on
            continue
        findings.add(
            Anomaly.COMMIT_REGRESS,
            where,
            f"{_read(second)} was read after {_read(highest)}, and nobody committed it in between",
            ops=ids(highest, second),
            t_ns=second.start_ns,
            span_ns=second.start_ns - highest.end_ns,
        )


def _check_zombies(history: History, findings: Findings) -> None:
    """A commit of a generation is refused once a newer one exists."""
    per_member = {n.note.group for n in history.notes if isinstance(n.note, Rebalanced) and n.note.per_member}
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for _, _, event in _generations(history):
        if isinstance(event, Rebalanced):
            name = (event.group, event.member if event.group in per_member else "")
            if event.generation > newest.get(name, (NONE, ""))[0]:
                newest[name] = (event.generation, event.member)
            continue
        assert isinstance(event.call, Commit)
        call = event.call
        known = newest.get((call.group, call.member if call.group in per_member else ""))
        if known is not None and 0 <= call.generation < known[0]:
            text = f"{call.member} committed in generation {call.generation} after {known[1]} had reached {known[0]}"
            findings.add(
                Anomaly.ZOMBIE_COMMIT_ACCEPTED, f"{call.group} {call.tp}", text, ops=ids(event), t_ns=event.start_ns
            )


def _generations(history: History) -> Iterable[tuple[int, int, Rebalanced | Op]]:
    """Generations as they became known, and accepted commits as they began; a commit first where times are equal."""

    def events() -> Iterator[tuple[int, int, Rebalanced | Op]]:
        for noted in history.notes:
            if isinstance(noted.note, Rebalanced):
                yield noted.t_ns, 1, noted.note
        for op in history.ops:
            if isinstance(op.call, Commit) and op.status is Status.OK:
                yield op.start_ns, 0, op
                # An accepted commit shows its generation to all who begin after it.
                call = op.call
                yield (
                    op.end_ns,
                    1,
                    Rebalanced(group=call.group, generation=call.generation, member=call.member, owned=[]),
                )

    return sorted(events(), key=lambda event: event[:2])


def _check_owners(history: History, findings: Findings) -> None:
    owner: dict[tuple[str, int, Partition], str] = {}
    for noted in history.notes:
        note = noted.note
        if not isinstance(note, Rebalanced):
            continue
        for tp in note.owned:
            first = owner.setdefault((note.group, note.generation, tp), note.member)
            if first != note.member:
                text = f"{first} and {note.member} own it in generation {note.generation}"
                findings.add(Anomaly.TWO_OWNERS, f"{note.group} {tp}", text, t_ns=noted.t_ns)


def _later(one: Op, other: Op) -> Op:
    return other if other.start_ns > one.start_ns else one


def _written(op: Op) -> int:
    assert isinstance(op.call, Commit)
    return op.call.offset


def _read(op: Op) -> int:
    assert isinstance(op.result, At)
    return op.result.offset
