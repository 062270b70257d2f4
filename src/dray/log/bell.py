"""A bell that followers of one process wait for.

There is no lost wake-up as long as the waiter looks at the state and calls
`wait` in the same turn of the loop, which is what the engines do.
"""

import asyncio


class Bell:
    """Wakes everyone who waits, in the order in which they came."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return after the next `ring`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # cancelled before the ring
                self._waiters.remove(waiter)

    def ring(self) -> None:
        """Wake all who wait now; who comes later waits for the next ring."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
