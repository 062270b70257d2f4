"""Ranges of a get: what may be asked, and what counts as short."""

from dray.buffers import Buffer
from dray.errors import Invalid
from dray.objects.port import ShortObject


def check_range(path: str, start: int, end: int | None) -> None:
    """Refuse a range that no object can have."""
    if start < 0 or (end is not None and end < start):
        raise Invalid("not a range", name=path, start=start, end=end)


def check_length(path: str, received: int, start: int, end: int) -> None:
    """Refuse an answer that has not the bytes that were asked for."""
    if received != end - start:
        raise short(path, start, end, size=start + received)


def short(path: str, start: int, end: int | None, size: int) -> ShortObject:
    """The error of an object that ends too early."""
    return ShortObject(
        "the object ends before the bytes that were asked for: it was cut, or the index is wrong",
        name=path,
        start=start,
        end="the end" if end is None else end,
        size=size,
    )


def cut(path: str, content: Buffer, start: int, end: int | None) -> memoryview:
    """A range of a whole object, checked."""
    size = len(content)
    if start > size or (end is not None and end > size):
        raise short(path, start, end, size)
    return memoryview(content)[start:end]
