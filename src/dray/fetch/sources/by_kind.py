"""Each run to the source of its objects' kind.

Almost every request is of one kind: then it costs one look at each run.

Invariants
    F17  Reads come back in the order of their runs, whatever kinds are among
         them; a kind that nobody reads here fails for its runs alone.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from dray.fetch.errors import Unreadable
from dray.fetch.plan import Place, Run
from dray.fetch.sources.source import RunRead, Source
from dray.objects.paths import ObjectKind


class Sources:
    """All sources of this process, as one."""

    def __init__(self, by_kind: Mapping[ObjectKind, Source]) -> None:
        self._by_kind = dict(by_kind)
        self.readahead_limit = sum(source.readahead_limit for source in by_kind.values())

    def read(self, runs: Sequence[Run]) -> Awaitable[list[RunRead]]:
        """The batches of each run (F17)."""
        kind = runs[0].place.kind if runs else None
        for run in runs:
            if run.place.kind is not kind:
                return self._read_kinds(runs)
        source = self._by_kind.get(kind) if kind is not None else None
        return self._read_kinds(runs) if source is None else source.read(runs)

    async def _read_kinds(self, runs: Sequence[Run]) -> list[RunRead]:
        parts = _by_kind(runs)
        reads = await asyncio.gather(*(self._read_kind(kind, part) for kind, part in parts.items()))
        following = {kind: iter(read) for kind, read in zip(parts, reads, strict=True)}
        return [next(following[run.place.kind]) for run in runs]

    def read_ahead(self, runs: Sequence[Run]) -> None:
        for kind, part in _by_kind(runs).items():
            if (source := self._by_kind.get(kind)) is not None:
                source.read_ahead(part)

    def forget(self, place: Place) -> None:
        if (source := self._by_kind.get(place.kind)) is not None:
            source.forget(place)

    async def close(self) -> None:
        for source in self._by_kind.values():
            await source.close()

    async def _read_kind(self, kind: ObjectKind, runs: Sequence[Run]) -> list[RunRead]:
        source = self._by_kind.get(kind)
        if source is not None:
            return await source.read(runs)
        return [
            RunRead((), [], Unreadable("this build reads no such objects", kind=kind.name, name=run.place.path), False)
            for run in runs
        ]


def _by_kind(runs: Sequence[Run]) -> dict[ObjectKind, list[Run]]:
    parts: dict[ObjectKind, list[Run]] = {}
    for run in runs:
        parts.setdefault(run.place.kind, []).append(run)
    return parts
