"""Tables that stand still: why each does, and since when.

A compactor that finds a table changed by somebody else does not write to it
any more, and says so here once: every other compactor, every broker's metrics
and whoever asks for the state of the table is told the same. The mark goes
when a compactor finds the table mended, or has made it anew.

Invariants
    TM1  A mark is of a topic that there is; it says since when, and putting it
         again changes that only if the reason is another.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from dray.machine.command import Command, Packed, TopicField
from dray.machine.head import Head
from dray.machine.keys import Shape
from dray.machine.names import SessionId, TopicId
from dray.machine.noun import Listing, stray
from dray.machine.packing import Reader, Writer
from dray.machine.step import Step
from dray.machine.timeline import Timeline
from dray.machine.topics import Topics
from dray.machine.verdict import DONE, Verdict, Why, refused

MARK_KEY: Final = Shape("tables/%/problem")
MAX_PROBLEM: Final = 500


class MarkTable(Packed, frozen=True, kw_only=True):
    """The table of a topic stands still, and why; with no problem it does not any more."""

    number = 61
    since = 2

    topic_id: TopicField
    problem: Annotated[str, Meta(max_length=MAX_PROBLEM)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMark:
    """Why a table stands still."""

    problem: str
    since_ms: int


class TableMarks:
    """The tables that stand still, by their topic; in the catalog alone."""

    name: ClassVar[str] = "table_marks"
    since: ClassVar[int] = 2
    commands: ClassVar[tuple[type[Command], ...]] = (MarkTable,)

    def __init__(self, head: Head, timeline: Timeline, topics: Topics) -> None:
        self.by_topic: dict[TopicId, TableMark] = {}
        self._head = head
        self._timeline = timeline
        self._topics = topics

    def find(self, topic_id: TopicId) -> TableMark | None:
        return self.by_topic.get(topic_id)

    def apply(self, step: Step, command: Command) -> Verdict:
        if not isinstance(command, MarkTable):
            return stray(command)
        if not self._head.is_catalog:
            return refused(Why.FOREIGN, "tables are marked in the catalog")
        for gone in [topic_id for topic_id in self.by_topic if self._topics.find(topic_id) is None]:
            del self.by_topic[gone]  # TM1
        if not command.problem:
            self.by_topic.pop(command.topic_id, None)
            return DONE
        if self._topics.find(command.topic_id) is None:
            return refused(Why.NOT_FOUND, "no such topic")  # TM1
        before = self.by_topic.get(command.topic_id)
        if before is None or before.problem != command.problem:
            self.by_topic[command.topic_id] = TableMark(problem=command.problem, since_ms=self._timeline.time_ms)
        return DONE

    def session_ended(self, step: Step, session: SessionId) -> None:
        """A mark outlives who put it."""

    def dump(self, out: Writer, version: int) -> None:
        out.values([len(self.by_topic)])
        for topic_id, mark in sorted(self.by_topic.items()):
            out.values([topic_id, mark.problem, mark.since_ms])

    def load(self, source: Reader, version: int) -> None:
        (count,) = source.ints(1)
        for _ in range(count):
            row = source.row()
            topic_id = TopicId(row.raw())
            self.by_topic[topic_id] = TableMark(problem=row.text(), since_ms=row.number())

    def show(self, prefix: str) -> Listing:
        for topic_id, mark in sorted(self.by_topic.items()):
            yield MARK_KEY.build(topic_id), {"problem": mark.problem, "since": mark.since_ms}
