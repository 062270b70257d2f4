"""Planning a read over a million index rows, from a machine in memory: folding the log is not in the time."""

import time

from bench.harness import Absolute, Case
from dray.machine.machine import Machine
from dray.machine.names import LogId, SessionId, StreamId, TopicId
from dray.machine.step import Step
from dray.machine.streams import Stream
from dray.pipeline.plan import Span, plan_tasks

ROWS = 1_000_000
STREAMS = 16


def planning() -> float:
    """Seconds for one plan; the index is made outside the time."""
    machine = Machine()
    step = Step(1, SessionId(1))
    streams = [Stream(StreamId((n + 1) << 16), TopicId(b"t" * 16), n, 0) for n in range(STREAMS)]
    for row in range(ROWS // STREAMS):
        owner = machine.objects.next
        machine.objects.add(step, log_id=LogId(b"l" * 8), session=SessionId(1), counter=row + 1, size=1 << 20,
                            created_ms=0, zone="", rows=STREAMS)  # fmt: skip
        for number, stream in enumerate(streams):
            stream.index.append(stream.end + 16, stream.index.size + 16_004, owner, number * 16_004 + 49, row)
    spans = [(machine, Span(topic="t", stream=stream, start=0, end=stream.end)) for stream in streams]
    started = time.perf_counter()
    tasks = plan_tasks(spans, cores=8, min_tasks=1)
    took = time.perf_counter() - started
    assert sum(len(piece.bases) for pieces in tasks for piece in pieces) == ROWS // STREAMS * STREAMS
    return took


def cases() -> list[Case]:
    return [Absolute("plan over 1,000,000 rows", planning, mark=3.0, unit="s", at_most=True)]
