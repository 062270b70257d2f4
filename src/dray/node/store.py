"""The object store of a cluster: the configured one, or the one in the data directory; opened, and bound."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TypeAlias

from dray.errors import DrayError, Invalid, Unavailable
from dray.ids import new_uuid
from dray.node import telemetry
from dray.node.birth import check_birth
from dray.node.directory import DataDirectory, Identity
from dray.node.joining import WrongStore
from dray.objects.cluster import ForeignPrefix, bind, bound_to
from dray.objects.opening import StoreEffects, StoreOptions, local_root, open_store
from dray.objects.port import Objects
from dray.objects.probe import probe, store_date
from dray.objects.retry import RetryPolicy
from dray.objects.settings import ObjectsSettings
from dray.replica.child import StoreAddress
from dray.replica.session import StoreDate
from dray.tables.options import Store
from dray.telemetry import logger

OpenStore: TypeAlias = Callable[[str, StoreOptions, StoreEffects], Awaitable[Objects]]
"""What makes a store of an address; a test gives one whose store fails."""


class ClusterStore:
    """Where the records of a cluster are kept, by the settings. `beside` is the directory that keeps its log."""

    def __init__(self, settings: ObjectsSettings, effects: StoreEffects, open_objects: OpenStore = open_store) -> None:
        self._settings = settings
        self._effects = effects
        self._open_objects = open_objects

    async def found(self, stack: AsyncExitStack, beside: DataDirectory | None, identity: Identity) -> Objects:
        """For who keeps the log: bound to this cluster, now if it is new. Refused if it should not be new (ND3)."""
        objects = await self._open(stack, beside)
        if beside is not None and self._settings.url != "memory:":
            await check_birth(objects, beside, identity, self._effects.disk)
        await self._trust(objects, identity.cluster_id)
        await bind(objects, identity.cluster_id)
        return objects

    async def join(self, stack: AsyncExitStack, beside: DataDirectory, identity: Identity) -> Objects:
        """For who joins the others: it must be bound already (SV3)."""
        objects = await self._open(stack, beside)
        if await bound_to(objects) != identity.cluster_id:
            raise WrongStore("this is not the store of the cluster: set objects.url to what its other brokers use")
        await self._trust(objects, identity.cluster_id)
        return objects

    async def shared(self, stack: AsyncExitStack) -> tuple[Objects, uuid.UUID]:
        """For brokers of several machines: the store, and the cluster that it is of, a new one if it is free."""
        objects = await self.opened(stack)
        found = await bound_to(objects)
        await self._trust(objects, found)
        if found is None:
            with suppress(ForeignPrefix):  # another one was faster
                await bind(objects, str(new_uuid(self._effects.entropy)))
            found = await bound_to(objects)
        if found is None:
            raise Unavailable("the store does not show what was just written to it")
        return objects, uuid.UUID(found)

    async def _trust(self, objects: Objects, ours: str | None) -> None:
        """Begin nothing on a store that lets a second put replace the first; nothing is tried in a foreign one (O9)."""
        if self._settings.is_remote and await bound_to(objects) in (None, ours):
            await probe(objects, self._effects.entropy)

    async def opened(self, stack: AsyncExitStack) -> Objects:
        """What brokers of several machines share, whosever it is."""
        if self._settings.url is None or self._settings.url == "memory:":
            raise Invalid(
                "brokers that share a log need a store that all of them reach: set objects.url, s3://BUCKET/PREFIX say"
            )
        return await self._open(stack, None)

    async def date(self, objects: Objects) -> StoreDate | None:
        """What the store's clock says; after a long stop it vouches for ours (Q7). One that cannot say does no harm."""
        if not self._settings.has_own_clock:
            return None  # files are dated by the very clock that would be vouched for
        try:
            date_ms = await store_date(objects, self._effects.entropy)
        except DrayError as error:
            logger().warning(telemetry.NO_DATE, error=str(error))
            return None
        return StoreDate(date_ms=date_ms, boot_ns=self._effects.clock.boot_ns())

    def address(self) -> StoreAddress:
        """How another process of ours reaches the configured store."""
        return StoreAddress.of(self._address(None), store_options(self._settings))

    def directory(self, beside: DataDirectory | None) -> Path | None:
        """Where it lies on a disk of this machine; None: not there."""
        return local_root(self._address(beside))

    async def _open(self, stack: AsyncExitStack, beside: DataDirectory | None) -> Objects:
        objects = await self._open_objects(self._address(beside), store_options(self._settings), self._effects)
        stack.push_async_callback(objects.close)
        return objects

    def _address(self, beside: DataDirectory | None) -> str:
        return self._settings.url or ("memory:" if beside is None else str(beside.objects))


def store_options(settings: ObjectsSettings) -> StoreOptions:
    """How the configured store is reached."""
    secret, token = settings.secret_access_key, settings.session_token
    return StoreOptions(
        endpoint=settings.endpoint,
        region=settings.region,
        access_key=settings.access_key_id,
        secret_key=None if secret is None else secret.get_secret_value(),
        session_token=None if token is None else token.get_secret_value(),
        credentials_file=settings.credentials_file,
        profile=settings.profile,
        retry=RetryPolicy(
            attempts=settings.retries + 1,
            attempt_seconds=settings.attempt_timeout.total_seconds(),
            total_seconds=settings.deadline.total_seconds(),
        ),
    )


def store_of(settings: ObjectsSettings) -> Store:
    """The store of a configuration, with its credentials."""
    secret, token = settings.secret_access_key, settings.session_token
    return Store(
        url=settings.url, endpoint=settings.endpoint, region=settings.region, access_key=settings.access_key_id,
        secret_key=None if secret is None else secret.get_secret_value(),
        session_token=None if token is None else token.get_secret_value(),
        credentials_file=None if settings.credentials_file is None else str(settings.credentials_file),
        profile=settings.profile, attempts=settings.retries + 1,
        attempt_seconds=settings.attempt_timeout.total_seconds(), total_seconds=settings.deadline.total_seconds(),
    )  # fmt: skip
