"""Many requests to a store, some of them at a time.

A topic that gets a record now and then has an object for each of them: a
task may need a hundred thousand, and a store that is asked for all of them at
once answers none.

Invariants
    SP8  A process of Spark has at most `GETS` requests to a store under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

GETS: Final = 32


async def some_at_a_time(ask: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R | BaseException]:
    """What each item gives, in their order; a failure takes the place of its answer."""
    places = asyncio.Semaphore(GETS)  # SP8

    async def one(item: T) -> R:
        async with places:
            return await ask(item)

    return await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
