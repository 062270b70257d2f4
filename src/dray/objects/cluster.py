"""A prefix belongs to one cluster: `cluster.json`, written once, says to which.

Without it, a broker with a wrong address would write into a foreign bucket,
and its garbage collection would look at objects that it does not know.

Invariants
    O9  A prefix is bound once; nobody rebinds it, and nothing is written or
        deleted under a prefix that is bound to another cluster.
"""

import json
from contextlib import suppress
from typing import Final

import msgspec

from dray.errors import Corrupt, Invalid
from dray.objects.paths import CLUSTER_NAME, WAL_PREFIX
from dray.objects.port import AlreadyExists, NoSuchObject, Objects

VERSION: Final = 1
BEGUN_NAME: Final = "log.json"
_SIZE_MAX: Final = 4096


class ForeignPrefix(Invalid):
    """The prefix belongs to another cluster."""


class NewerPrefix(Invalid):
    """A newer release wrote the binding."""


class _Binding(msgspec.Struct, frozen=True):
    version: int
    cluster_id: str


async def bind(objects: Objects, cluster_id: str) -> None:
    """Bind an unbound prefix to this cluster, or check that it is bound to it (O9).

    Raises:
        ForeignPrefix: it belongs to another cluster.
        NewerPrefix, Corrupt: the binding can not be read.
    """
    content = json.dumps({"version": VERSION, "cluster_id": cluster_id}).encode()
    try:
        await objects.put(CLUSTER_NAME, [content])
    except AlreadyExists:
        found = await bound_to(objects)
        if found != cluster_id:
            raise ForeignPrefix(
                "this prefix belongs to another cluster: correct the store's address, or give this cluster a prefix "
                "of its own",
                prefix_of=found,
                ours=cluster_id,
            ) from None


async def bound_to(objects: Objects) -> str | None:
    """The cluster that a prefix belongs to, or None if it is free."""
    try:
        size = (await objects.head(CLUSTER_NAME)).size
        content = await objects.get(CLUSTER_NAME, 0, min(size, _SIZE_MAX))
    except NoSuchObject:
        return None
    try:
        version = msgspec.json.decode(content, type=dict[str, object]).get("version")
        if isinstance(version, int) and version > VERSION:
            raise NewerPrefix(
                "a newer release of Dray wrote this prefix: upgrade this one, or use another prefix",
                object=CLUSTER_NAME,
                version=version,
                known=VERSION,
            )
        binding = msgspec.json.decode(content, type=_Binding)
        if binding.version != VERSION or not binding.cluster_id:
            raise msgspec.ValidationError("no such version")
        return binding.cluster_id
    except msgspec.DecodeError as error:
        raise Corrupt(
            "the binding of this prefix can not be read: restore it, or remove it if you are sure which cluster "
            "the objects belong to",
            object=CLUSTER_NAME,
            size=size,
        ) from error


async def mark_begun(objects: Objects) -> None:
    """Remember that a log was begun whose records are kept under this prefix."""
    try:
        await objects.head(BEGUN_NAME)
    except NoSuchObject:
        with suppress(AlreadyExists):
            await objects.put(BEGUN_NAME, [json.dumps({"version": VERSION, "begun": True}).encode()])


async def was_begun(objects: Objects) -> bool:
    """Whether a log was ever begun whose records are kept here: it says so, or there are records."""
    try:
        await objects.head(BEGUN_NAME)
    except NoSuchObject:
        async for _ in objects.list(WAL_PREFIX):
            return True
        return False
    return True
