"""Planning a read, from the options to the tasks.

The order is what makes it safe: first the objects are held (`pins`), then the
cut is made from a state in which they are.

Invariants
    SP5  No object of a plan is deleted while its plan is held: the hold was in
         the log before the state was read, so whatever dies later than the
         plan dies behind the hold (X9).
"""

import os
from collections.abc import Mapping

from dray.errors import NotFound
from dray.machine.machine import Machine
from dray.objects.cluster import bound_to
from dray.objects.port import Objects
from dray.pipeline.errors import BadOption
from dray.pipeline.opening import place_of
from dray.pipeline.options import ReadOptions
from dray.pipeline.parallelism import cores
from dray.pipeline.pins import held_state
from dray.pipeline.plan import Piece, Plan, Span, plan_tasks
from dray.pipeline.ranges import Wanted, find_partitions, span_of
from dray.pipeline.stores import open_for_tasks
from dray.pipeline.together import some_at_a_time


async def plan_read(options: ReadOptions, *, shared: bool = True, parallel: int | None = None) -> Plan:
    """Hold the objects, make the cut, cut it into tasks.

    `shared`: whether the hold may be somebody else's as well; one that is not can be let go early. `parallel`: how many
    tasks run at a time, if not what the session of this planner told.
    """
    place, address = place_of(options)
    state = await held_state(place, seconds=options.pin_seconds, shared=shared)  # SP5
    objects = await open_for_tasks(address)
    try:
        await _check_binding(objects, state.cluster_id, address)
        tasks = await _plan(options, state.machines, objects, parallel or cores(os.environ))  # noqa: TID251
    finally:
        await objects.close()
    return Plan(address=address, tasks=tasks, pin=state.pin)


async def _plan(
    options: ReadOptions, machines: Mapping[int, Machine], objects: Objects, parallel: int
) -> list[list[Piece]]:
    partitions = find_partitions(options, machines)

    async def span(found: Wanted) -> tuple[Machine, Span]:
        return found.machine, await span_of(options, found, objects)

    spans = []
    for result in await some_at_a_time(span, partitions):  # a time is looked up in a batch
        if isinstance(result, BaseException):
            raise result
        spans.append(result)
    return plan_tasks(spans, cores=parallel, min_tasks=options.min_partitions, max_records=options.max_records)


async def _check_binding(objects: Objects, cluster_id: str, address: str) -> None:
    """The store must be the one of this cluster."""
    bound = await bound_to(objects)
    if bound is None:
        raise NotFound("no records are here: give objects, the store that the broker writes to", objects=address)
    if bound != cluster_id:
        raise BadOption("the store belongs to another cluster", objects=address, has=bound, wanted=cluster_id)
