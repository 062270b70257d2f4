"""Records that somebody wants to be gone: the log start rises at once, the rows go with it or soon after.

Invariants
    RT30  The log start moves by a command that the machine judges: never back, never beyond the end. One slice of
          rows goes with it; what is left below the start is taken by the next pass of retention (RT2).
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from dray.errors import DrayError, Unavailable
from dray.machine.names import StreamId
from dray.machine.streams import FloorRaised, FloorReason, RaiseFloor
from dray.machine.verdict import Refused, Verdict, Why
from dray.replica.domains import Domains
from dray.replica.freshness import Freshness
from dray.replica.replica import Replica
from dray.retention.errors import BeyondEnd
from dray.retention.floors import SLICE_ROWS
from dray.topics.errors import UnknownPartition

TO_THE_END: Final = -1
"""Everything that is there when the request comes."""
TOGETHER: Final = 64
"""Streams whose commands share an entry."""
Deleted: TypeAlias = int | DrayError
"""The new log start, or why it did not move."""


class RecordService:
    """What deletes records on request."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains

    async def delete(self, wanted: Mapping[StreamId, int], fresh: Freshness) -> dict[StreamId, Deleted]:
        """Raise log starts to offsets; what became of each. Durable when it returns.

        One that cannot be done hinders no other. To repeat it is harmless.
        """
        answers: dict[StreamId, Deleted] = {}
        by_replica: dict[Replica, list[StreamId]] = {}
        for stream in wanted:
            by_replica.setdefault(self._domains.of(stream), []).append(stream)
        for replica, streams in by_replica.items():
            try:
                await fresh.of(replica)
            except DrayError as error:
                answers.update(dict.fromkeys(streams, error))
                continue
            for first in range(0, len(streams), TOGETHER):
                part = streams[first : first + TOGETHER]
                answers.update(await _raise(replica, {stream: wanted[stream] for stream in part}))
        return answers


async def _raise(replica: Replica, wanted: Mapping[StreamId, int]) -> dict[StreamId, Deleted]:
    answers: dict[StreamId, Deleted] = {}
    commands: list[RaiseFloor] = []
    for number, offset in wanted.items():
        found = _bound(replica, number, offset)
        if isinstance(found, RaiseFloor):
            commands.append(found)
        else:
            answers[number] = found
    if commands:
        try:
            verdicts: Sequence[Verdict] = await replica.propose(*commands)
        except DrayError as error:
            return answers | {command.stream: error for command in commands}
        answers |= {
            command.stream: _judged(command, verdict) for command, verdict in zip(commands, verdicts, strict=True)
        }
    return answers


def _bound(replica: Replica, number: StreamId, offset: int) -> RaiseFloor | Deleted:
    """The command that would move the start, or an answer that needs none; after a sync."""
    stream = replica.machine.streams.find(number)
    if stream is None or stream.closed:
        return UnknownPartition("the topic was deleted", stream=number)
    bound = stream.end if offset == TO_THE_END else offset
    if not 0 <= bound <= stream.end:
        return BeyondEnd("there is no such offset to delete to", offset=offset, end=stream.end)
    if bound <= stream.start:
        return stream.start  # RT30
    return RaiseFloor(stream=number, reason=FloorReason.DELETE_RECORDS, bound=bound, limit=SLICE_ROWS)


def _judged(command: RaiseFloor, verdict: Verdict) -> Deleted:
    match verdict:
        case FloorRaised(start=start):
            return start
        case Refused(why=Why.NOT_FOUND | Why.STATE):
            return UnknownPartition("the topic was deleted", stream=command.stream)
        case _:
            return Unavailable("the machine refused: try again", verdict=verdict)
