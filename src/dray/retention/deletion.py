"""Many objects deleted at once, some at a time; what fails is told apart from what is gone."""

import asyncio
from collections.abc import Sequence

from dray.errors import DrayError
from dray.objects.port import Objects
from dray.retention import telemetry
from dray.telemetry import logger


async def delete_all(store: Objects, paths: Sequence[str], *, in_flight: int) -> list[bool]:
    """Delete objects, at most `in_flight` at a time; for each: is it surely gone?"""
    gone = [False] * len(paths)
    waiting = iter(range(len(paths)))
    errors: list[DrayError] = []

    async def work() -> None:
        for at in waiting:
            try:
                await store.delete(paths[at])
                gone[at] = True
            except DrayError as error:
                errors.append(error)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(in_flight, len(paths))):
            tasks.create_task(work())
    if errors:
        logger().warning(telemetry.NOT_DELETED, count=len(errors), first=str(errors[0]))
    return gone
