"""Names that a shell offers: what the cluster has, if it tells in time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

import typer

from dray.cli.asking._connecting import addresses, selected
from dray.errors import DrayError
from dray.kafka_client.cluster import Cluster
from dray.kafka_client.groups import list_groups
from dray.kafka_client.topics import list_topics

PATIENCE_S: Final = 2.0
"""Of a person who pressed a key."""


def topics_like(context: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin like this."""

    async def look(cluster: Cluster) -> list[str]:
        return [one.topic for one in await list_topics(cluster)]

    return _names(context, incomplete, look)


def groups_like(context: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin like this."""

    async def look(cluster: Cluster) -> list[str]:
        return [one.group for one in await list_groups(cluster)]

    return _names(context, incomplete, look)


def _names(
    context: typer.Context, incomplete: str, look: Callable[[Cluster], Coroutine[object, object, list[str]]]
) -> list[str]:
    async def run() -> list[str]:
        chosen = selected(context.params.get("bootstrap"), context.params.get("profile"))
        async with asyncio.timeout(PATIENCE_S), Cluster([(at.host, at.port) for at in addresses(chosen)]) as cluster:
            return await look(cluster)

    try:
        return [name for name in asyncio.run(run()) if name.startswith(incomplete)]
    except (DrayError, TimeoutError, typer.BadParameter):
        return []  # nothing is said on a half-written line
