"""A heap that tells its history, while its brokers come and go.

Everything that happens to the heap of the scenario `heaps`; at the end the
whole log is folded anew, and every event of that fold is one record of the
topic, in its order, and nothing else is.

Events have machine time, by which delays are judged: so it is told exactly
whether one ended early. Clients cannot tell that, for the lines of brokers lie
apart by what their opening took (ADR-0189).
"""

import asyncio
from datetime import datetime
from typing import Final

import msgspec

from dray.heaps.history import HistoryRow, row_of
from dray.machine.names import StreamId
from dray.sim.brokers import Broker, Cluster
from dray.sim.planted import Scenario
from dray.sim.scenarios.appends import PROGRESS_SECONDS
from dray.sim.scenarios.heaps import work
from dray.sim.world import World

TOPIC: Final = "jobs.history"
ALL: Final = 1 << 30
WAITS: Final = ("enqueued", "nacked", "released", "expired")


def happened(cluster: Cluster) -> tuple[StreamId, list[HistoryRow]]:
    """What a fold of the whole log writes down, and the shard whose history it is."""
    for domain in cluster.logs:
        machine, rows, found = cluster.new_machine("fold"), list[HistoryRow](), None
        for entry in cluster.logs[domain].history:
            machine.apply(entry.position, entry.entry)
            for shard, history in machine.histories.all.items():
                found = shard
                for at in range(len(rows) - history.first, len(history.events)):
                    rows.append(row_of(history, domain, history.first + at, history.events[at]))
        if found is not None:
            return found, rows
    raise AssertionError("no heap has a history")


def check_times(world: World, rows: list[HistoryRow]) -> int:
    """No lease before the time that was named, not by a millisecond (L7); how many came after a wait."""
    ready_ms: dict[str, int] = {}
    waited = 0
    for row in rows:
        time_ms, message = round(datetime.fromisoformat(row.time).timestamp() * 1_000), row.message or ""
        if row.event == "leased":
            due_ms = ready_ms.pop(message, 0)
            waited += due_ms > 0
            world.check(time_ms >= due_ms, "a delay ended early", message=message, early_ms=due_ms - time_ms)
        elif row.event in WAITS and row.span_ms:
            ready_ms[message] = time_ms + row.span_ms
    return waited


async def heap_history(world: World) -> None:
    """HI1, L7"""
    cluster = await work(world, history=TOPIC)

    async def told(broker: Broker) -> list[HistoryRow]:
        topic = await broker.services.topics.find(TOPIC)
        records = []
        for stream in topic.streams:
            found = await broker.services.reads.read(stream, 0, max_records=ALL, max_bytes=ALL)
            records += found.records
        return [msgspec.json.decode(record.value or b"", type=HistoryRow) for record in records]

    async def whole() -> None:
        while True:
            if len(await cluster.ask(told)) >= len(happened(cluster)[1]):
                return
            await asyncio.sleep(1.0)

    await world.within(PROGRESS_SECONDS, whole(), "a history is told in fair weather")
    rows, expected = await cluster.ask(told), happened(cluster)[1]
    world.check(rows == expected, "the history is not what happened", told=len(rows), happened=len(expected))
    waited = check_times(world, rows)
    world.check(waited > 5, "hardly anything was delayed: the run proves nothing", waited=waited)
    world.check(len(rows) > 50, "hardly anything happened: the run proves nothing", told=len(rows))


SCENARIOS: Final[dict[str, Scenario]] = {"heap-history": heap_history}
