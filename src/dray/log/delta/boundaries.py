"""What of a delta log was trimmed: a boundary says so first, and what lies below it is deleted later.

    log/v1/domain=<domain>/_boundary/<position>     entries at or below it are gone for everybody

Names are only ever created, so trimming leaves no trace at the version itself,
and whoever slept could put a version that others have deleted. It would be
told that it won, and nobody would ever read it. So what is deleted has been
below a boundary for a while (`grace_s`), and who was not at the end of the log
within half of that looks at the boundary before it believes that it won.

The lowest boundary says up to where everything was deleted; it goes when the
next one may take its place.

Invariants
    LG41  A commit is deleted only after it lay below a boundary for `grace_s`
          by the clock of the process that deletes it.
"""

import asyncio
from contextlib import suppress
from typing import Final

from dray.clock import Clock
from dray.log.delta.commits import boundaries_prefix, boundary_name, commit_name, parse_boundary
from dray.objects.port import AlreadyExists, Objects

GRACE_S: Final = 60.0
_AT_ONCE: Final = 16


class Boundaries:
    """The boundaries of one domain's log."""

    def __init__(self, objects: Objects, domain: int, clock: Clock, *, grace_s: float = GRACE_S) -> None:
        self._objects = objects
        self._domain = domain
        self._clock = clock
        self._grace_ns = int(grace_s * 1e9)
        self._seen: dict[int, int] = {}
        """Those that there are, and when this process first saw them."""

    async def highest(self) -> int:
        """Entries at or below it are gone; 0: nothing was trimmed."""
        found: dict[int, int] = {}
        async for info in self._objects.list(boundaries_prefix(self._domain)):
            position = parse_boundary(info.path)
            if position is not None:
                found[position] = self._seen.get(position, self._clock.boot_ns())
        self._seen = found
        return max(found, default=0)

    async def raise_to(self, upto: int) -> None:
        """Let go of what is at or below; what lay below a boundary for long enough is deleted (LG41)."""
        if upto > await self.highest():
            if not self._seen:
                await self._put(0)  # nothing was deleted so far
            await self._put(upto)
        now_ns, seen = self._clock.boot_ns(), sorted(self._seen.items())  # others look while we delete
        ripe = max((one for one, seen_ns in seen if now_ns - seen_ns >= self._grace_ns), default=0)
        below = [one for one, _ in seen if one < ripe]
        for first in range(min(below, default=ripe), ripe, _AT_ONCE):
            versions = range(first, min(ripe, first + _AT_ONCE))
            await asyncio.gather(*(self._objects.delete(commit_name(self._domain, version)) for version in versions))
        for one in below:
            await self._objects.delete(boundary_name(self._domain, one))
            self._seen.pop(one, None)

    async def begin_at(self, position: int) -> None:
        """Nothing was ever at or below it."""
        await self._put(position)

    async def _put(self, position: int) -> None:
        with suppress(AlreadyExists):
            await self._objects.put(boundary_name(self._domain, position), [b"{}"])
        self._seen.setdefault(position, self._clock.boot_ns())
