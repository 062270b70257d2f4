"""Is what the store holds what we sent? How a put meets its own earlier attempt (O3)."""

from collections.abc import Sequence

from dray.buffers import Buffer
from dray.objects.port import NoSuchObject, Objects, ShortObject, StoreUnavailable


def total_bytes(parts: Sequence[Buffer]) -> int:
    """The length of the concatenation."""
    return sum(memoryview(part).nbytes for part in parts)


def equal(found: Buffer, parts: Sequence[Buffer]) -> bool:
    """Whether `found` is the concatenation of `parts`, without making it."""
    view = memoryview(found).cast("B")
    at = 0
    for part in parts:
        expected = memoryview(part).cast("B")
        if view[at : at + expected.nbytes] != expected:
            return False
        at += expected.nbytes
    return at == view.nbytes


async def holds(objects: Objects, path: str, parts: Sequence[Buffer]) -> bool | None:
    """True if the name holds these bytes, False if it holds others, None if there is no such object.

    An answer that ends early says nothing about the object: `StoreUnavailable`.
    """
    size = total_bytes(parts)
    try:
        if (await objects.head(path)).size != size:
            return False
        return equal(await objects.get(path, 0, size), parts)
    except NoSuchObject:
        return None
    except ShortObject as error:
        raise StoreUnavailable("the object could not be read back whole", name=path) from error
