"""Bodies that lie in objects: read together, and kept for a while.

What one grant needs of an object is read at once: the whole object where a
quarter of it is wanted, else ranges that are joined over small gaps.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from dray.buffers import Buffer
from dray.errors import DrayError, NotFound
from dray.heaps.errors import UnreadableBody
from dray.machine.heaps.answers import GrantedMessage
from dray.machine.names import ObjectId
from dray.objects.port import Objects
from dray.replica.replica import Replica

JOIN_BYTES: Final = 64 << 10
WHOLE_SHARE: Final = 4


class ReadObjects:
    """Whole objects that were read, the least recently used go first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, memoryview] = OrderedDict()
        self._bytes = 0

    def find(self, path: str) -> memoryview | None:
        found = self._held.get(path)
        if found is not None:
            self._held.move_to_end(path)
        return found

    def keep(self, path: str, content: memoryview) -> None:
        if path in self._held or len(content) > self._most_bytes:
            return
        self._held[path] = content
        self._bytes += len(content)
        while self._bytes > self._most_bytes:
            _, gone = self._held.popitem(last=False)
            self._bytes -= len(gone)


class BodyReader:
    """Reads the bodies of one domain."""

    def __init__(self, *, replica: Replica, objects: Objects, kept: ReadObjects) -> None:
        self._replica = replica
        self._objects = objects
        self._kept = kept

    async def read(self, messages: Sequence[GrantedMessage]) -> dict[int, Buffer | DrayError]:
        """The body of each message, by slot, or why there is none."""
        found: dict[int, Buffer | DrayError] = {
            message.slot: message.body for message in messages if message.body is not None
        }
        by_object: dict[int, list[GrantedMessage]] = {}
        for message in messages:
            if message.body is None:
                by_object.setdefault(message.place - 1, []).append(message)
        for number, wanted in by_object.items():
            try:
                found.update(await self._from_object(ObjectId(number), wanted))
            except DrayError as error:
                found.update({message.slot: error for message in wanted})
        return found

    async def _from_object(self, number: ObjectId, wanted: Sequence[GrantedMessage]) -> Mapping[int, Buffer]:
        record = self._replica.machine.objects.find(number)
        if record is None:
            raise UnreadableBody("a message names an object that the machine has forgotten", object=number)
        path = record.path()
        whole = self._kept.find(path)
        if whole is None and WHOLE_SHARE * sum(message.length for message in wanted) >= record.size:
            whole = await self._get(path, 0, record.size)
            self._kept.keep(path, whole)
        if whole is not None:
            return {m.slot: whole[m.position : m.position + m.length] for m in wanted}
        found: dict[int, Buffer] = {}
        for start, end, inside in _joined(wanted):
            content = await self._get(path, start, end)
            found.update({m.slot: content[m.position - start : m.position - start + m.length] for m in inside})
        return found

    async def _get(self, path: str, start: int, end: int) -> memoryview:
        try:
            return await self._objects.get(path, start, end)
        except NotFound as gone:
            raise UnreadableBody("the object of a message is gone", path=path) from gone


def _joined(wanted: Sequence[GrantedMessage]) -> list[tuple[int, int, list[GrantedMessage]]]:
    """Ranges that hold the bodies, joined over small gaps."""
    ranges: list[tuple[int, int, list[GrantedMessage]]] = []
    for message in sorted(wanted, key=lambda one: one.position):
        end = message.position + message.length
        if ranges and message.position - ranges[-1][1] <= JOIN_BYTES:
            start, before, inside = ranges[-1]
            ranges[-1] = (start, max(before, end), [*inside, message])
        else:
            ranges.append((message.position, end, [message]))
    return ranges
