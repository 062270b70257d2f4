"""Does a store keep its word about create-only puts? Asked by `drayd doctor` and at the first start.

Some stores accept the condition and ignore it. On such a store two brokers
could overwrite each other's objects and both be told that they succeeded.
"""

import asyncio
from typing import Final

from dray.errors import Invalid
from dray.ids import Entropy
from dray.objects.port import AlreadyExists, Objects

_RACERS: Final = 4
_ADVICE: Final = (
    "the store ignores create-only puts, so two writers could overwrite each other: "
    "use a store that honours If-None-Match (S3, GCS, Azure, MinIO, versitygw), or a local directory"
)


class NoCreateOnly(Invalid):
    """The store can not be used: it lets a second put replace the first."""


async def probe(objects: Objects, entropy: Entropy) -> None:
    """Put one name twice, and another from several sides at once; each must have one winner. Cleans up."""
    stem = f"probe/{entropy.random_bytes(8).hex()}"
    one, many = f"{stem}-1", f"{stem}-2"
    try:
        await objects.put(one, [b"first"])
        if await _wins(objects, one, b"second"):
            raise NoCreateOnly(_ADVICE, name=one)
        if bytes(await objects.get(one)) != b"first":
            raise NoCreateOnly(_ADVICE, name=one, found="other bytes than the winner's")
        won = await asyncio.gather(*(_wins(objects, many, f"racer {racer}".encode()) for racer in range(_RACERS)))
        if sum(won) != 1:
            raise NoCreateOnly(_ADVICE, name=many, winners=sum(won))
    finally:
        await objects.delete(one)
        await objects.delete(many)


async def _wins(objects: Objects, name: str, content: bytes) -> bool:
    try:
        await objects.put(name, [content])
    except AlreadyExists:
        return False
    return True


async def store_date(objects: Objects, entropy: Entropy) -> int:
    """What time it is for the store, in ms: the age it gives to an object that was just put."""
    name = f"probe/date-{entropy.random_bytes(8).hex()}"
    await objects.put(name, [b"what time is it?"])
    try:
        return (await objects.head(name)).modified_ms
    finally:
        await objects.delete(name)
