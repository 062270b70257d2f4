"""Planning a read, from the options to the tasks.

The order is what makes it safe: first the objects are held (`pins`), then the
log is read up to its tail, then the cut is made from that one state.

Invariants
    SP5  No object of a plan is deleted while its plan is held: the pin was in
         the log before the state was read, so whatever dies later than the
         plan dies behind the pin (X3).
"""

import os
from dataclasses import dataclass

from dray.errors import NotFound
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory, Identity
from dray.objects.cluster import bound_to
from dray.objects.port import Objects
from dray.pipeline.errors import BadOption
from dray.pipeline.opening import open_metadata, read_directory
from dray.pipeline.options import ReadOptions
from dray.pipeline.parallelism import cores
from dray.pipeline.pins import hold
from dray.pipeline.plan import Piece, Span, plan_tasks
from dray.pipeline.ranges import Wanted, find_partitions, span_of
from dray.pipeline.stores import open_for_tasks
from dray.pipeline.together import some_at_a_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What tasks need."""

    address: str
    tasks: list[list[Piece]]


async def plan_read(options: ReadOptions, *, driver: int | None = None) -> Plan:
    """Hold the objects, make the cut, cut it into tasks. `driver`: see `pins.hold`."""
    directory, identity = read_directory(options.path)
    await hold(directory, seconds=options.pin_seconds, driver=driver)  # SP5
    address = options.objects or str(directory.objects)
    objects = await open_for_tasks(address)
    try:
        await _check_binding(objects, identity, address)
        return Plan(address=address, tasks=await _plan(options, directory, objects))
    finally:
        await objects.close()


async def _plan(options: ReadOptions, directory: DataDirectory, objects: Objects) -> list[list[Piece]]:
    async with open_metadata(directory) as metadata:
        machines: dict[int, Machine] = {0: await metadata.machine(0)}
        for domain in sorted(set(machines[0].head.data_domains) - {0}):
            machines[domain] = await metadata.machine(domain)
    partitions = find_partitions(options, machines)

    async def span(found: Wanted) -> tuple[Machine, Span]:
        return found.machine, await span_of(options, found, objects)

    spans = []
    for result in await some_at_a_time(span, partitions):  # a time is looked up in a batch
        if isinstance(result, BaseException):
            raise result
        spans.append(result)
    return plan_tasks(
        spans,
        cores=cores(os.environ),  # noqa: TID251
        min_tasks=options.min_partitions,
        max_records=options.max_records,
    )


async def _check_binding(objects: Objects, identity: Identity, address: str) -> None:
    """The store must be the one of this directory's cluster."""
    bound = await bound_to(objects)
    if bound is None:
        raise NotFound("no records are here: give objects, the store that the broker writes to", objects=address)
    if bound != identity.cluster_id:
        raise BadOption("the store belongs to another cluster", objects=address, has=bound, wanted=identity.cluster_id)
