"""A shop with a compactor: ranges become files, step by step."""

from dray.machine.names import ObjectId, StreamId
from dray.machine.sessions import SessionKind
from dray.machine.tasks import (
    AbandonTask,
    CreateTask,
    FilesKnown,
    FilesWritten,
    FinishTask,
    Swap,
    Swapped,
    TableCommitted,
    Task,
    TaskCreated,
    TaskFinished,
    WrittenFile,
)
from dray.machine.verdict import Done, Verdict

from .scribe import NOW, Writer
from .shop import Shop


class Mill(Shop):
    """One broker and one compactor on one tape."""

    def __init__(self, **genesis) -> None:
        super().__init__(**({"version": 2} | genesis))
        self.compactor: Writer = self.open_compactor()
        self.counter = 0

    def open_compactor(self, name: str = "compactor") -> Writer:
        return self.tape.open(name, kind=SessionKind.COMPACTOR)

    def take(self, stream: StreamId, start: int, end: int, **how) -> int:
        created = self.compactor.do(CreateTask(stream=stream, start=start, end=end, **how))
        assert isinstance(created, TaskCreated), created
        return created.task

    def file(self, start: int, end: int, *, size: int = 5 << 30, records: int | None = None) -> WrittenFile:
        self.counter += 1
        return WrittenFile(
            counter=self.counter, size=size, start=start, end=end, records=end - start if records is None else records,
            min_timestamp_ms=NOW, max_timestamp_ms=NOW, created_ms=NOW + 5, footer_crc=1_000 + self.counter,
        )  # fmt: skip

    def write(self, stream: StreamId, task: int, *ends: int) -> tuple[ObjectId, ...]:
        """Files that end at these offsets; the first begins where the task does."""
        starts = [self.task(stream).start, *ends]
        files = tuple(self.file(start, end) for start, end in zip(starts, ends, strict=False))
        known = self.compactor.do(FilesWritten(stream=stream, task=task, files=files))
        assert isinstance(known, FilesKnown), known
        return known.objects

    def task(self, stream: StreamId) -> Task:
        found = self.machine.tasks.find(stream)
        assert found is not None
        return found

    def commit(self, stream: StreamId, task: int) -> None:
        assert self.compactor.do(TableCommitted(stream=stream, task=task, commit="c-1")) == Done()

    def swap(self, stream: StreamId, task: int) -> Swapped:
        swapped = self.compactor.do(Swap(stream=stream, task=task))
        assert isinstance(swapped, Swapped), swapped
        return swapped

    def finish(self, stream: StreamId, task: int, limit: int = 3_000) -> int:
        finished = self.compactor.do(FinishTask(stream=stream, task=task, limit=limit))
        assert isinstance(finished, TaskFinished), finished
        return finished.left

    def abandon(self, stream: StreamId, task: int) -> Verdict:
        return self.compactor.do(AbandonTask(stream=stream, task=task))

    def compact(self, stream: StreamId, *ends: int, **how) -> tuple[ObjectId, ...]:
        """The whole saga, from the first row that is no file up to the last of these ends."""
        found = self.machine.streams.find(stream)
        assert found is not None
        start = found.index.end_of(self.machine.streams.first_hot(found))
        task = self.take(stream, start, ends[-1], **how)
        objects = self.write(stream, task, *ends)
        if how.get("table", True):
            self.commit(stream, task)
        self.swap(stream, task)
        assert self.finish(stream, task) == 0
        return objects
