"""Access, as a service: who is let in, what they may do, and what is kept of it.

Servers ask three things of it. For each call `admit` says who it is by the key
it shows; `allow` says whether they may; and a call that changes what people
set up runs in `audited`, so that it is written down. What cannot be undone is
asked for twice (`confirm`), and streams are held (`streams`), so that they end
with their key.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from dray.access import confirmation, telemetry
from dray.access.audit import Audit, Deed
from dray.access.authorizer import RIGHTS, Action
from dray.access.errors import Forbidden, OverLimit, Unauthenticated
from dray.access.principals import Entrance, KnownCaller, nobody, parse_principal
from dray.access.settings import AccessSettings
from dray.access.verifying import KeyVerifier
from dray.access.watcher import StreamWatch
from dray.clock import Clock
from dray.errors import DrayError, Unavailable
from dray.ids import Entropy
from dray.machine.access import SECRET_BYTES, SetSecret, Touch, TouchKeys
from dray.offload import Offload
from dray.replica.replica import Replica
from dray.telemetry import logger

T = TypeVar("T")

TOUCHED_AT_ONCE: Final = 1_000
MEND_S: Final = 5.0
REQUEST_BYTES: Final = 8
MOST_RESOURCE: Final = 300


_TAKEN: Final = {door: telemetry.ATTEMPTS.labels(door.value, "taken") for door in Entrance}


class AccessService:
    """Who may ask here."""

    def __init__(
        self, *, catalog: Replica, clock: Clock, entropy: Entropy, offload: Offload, audit: Audit,
        settings: AccessSettings, loopback: bool,
    ) -> None:  # fmt: skip
        """`offload` is where keys are checked; `loopback`: nobody but this machine can connect to any listener."""
        self._catalog = catalog
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._loopback = loopback
        self._verifier = KeyVerifier(
            catalog=catalog, clock=clock, entropy=entropy, offload=offload, parallel=settings.argon2_parallel
        )
        self.streams = StreamWatch(catalog, settings.streams_per_key)
        self.audit = audit
        self._used: dict[str, int] = {}
        self._life = entropy.random_bytes(REQUEST_BYTES).hex()
        self._requests = 0
        self._deeds: set[asyncio.Task[object]] = set()

    @property
    def required(self) -> bool:
        """Does a call need a key?"""
        if self._settings.required == "auto":
            return not self._loopback or self._catalog.machine.access.closed
        return self._settings.required == "on"

    # -- what servers ask --------------------------------------------------

    async def admit(self, shown: str | None, *, door: Entrance, address: str) -> KnownCaller:
        """Who makes a call, by the key that it shows.

        Raises:
            Unauthenticated: no key, or one that is not valid.
            OverLimit: there were too many wrong ones.
            Unavailable: it cannot be judged at the moment.
        """
        if shown is None:
            if not self.required:
                return nobody(door, address, self.new_request())
            _count(door, "none")
            raise Unauthenticated("a key is needed: send it as `Authorization: Bearer dray_...`")
        try:
            key = await self._verifier.verify(shown, address)
        except Unauthenticated:
            _count(door, "refused")
            raise
        except OverLimit:
            _count(door, "limited")
            raise
        _TAKEN[door].inc()
        self._used[key.id] = self._clock.wall_ms()
        return KnownCaller(
            principal=parse_principal(key.principal),
            rights=RIGHTS[key.role],
            door=door,
            address=address,
            request=self.new_request(),
            key_id=key.id,
        )

    def allow(self, caller: KnownCaller, action: Action, name: str = "") -> None:
        """Return if the caller may do it to what has this name; else `Forbidden`."""
        try:
            caller.rights.check(action, name)
        except Forbidden:
            telemetry.DENIED.labels(action.value).inc()
            raise

    async def confirm(
        self, caller: KnownCaller, action: Action, *, target: bytes, revision: int, given: str, force: bool,
        options: str = "",
    ) -> None:  # fmt: skip
        """Return if the caller asked for it a second time; else `ConfirmationNeeded` (CN1)."""
        wanted = confirmation.Confirmable(
            operation=action.value, target=target, revision=revision, options=options,
            principal=f"{caller.principal} {caller.key_id}",
        )  # fmt: skip
        secret = await self._secret()
        confirmation.confirm(secret, wanted, given, self._catalog.machine.time_ms, force=force)

    def new_request(self) -> str:
        """A name for one call, for the log and the audit file."""
        self._requests += 1
        return f"{self._life}-{self._requests:x}"

    async def audited(self, caller: KnownCaller, action: Action, resource: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do what an administrator asks and write it down; whoever asked may leave meanwhile (AU2, AC12)."""
        task = asyncio.ensure_future(self._do(caller, action, resource, work))
        self._deeds.add(task)
        task.add_done_callback(self._deeds.discard)
        return await asyncio.shield(task)

    async def _do(self, caller: KnownCaller, action: Action, resource: str, work: Callable[[], Awaitable[T]]) -> T:
        await self.audit.ready()
        try:
            done = await work()
        except DrayError as error:
            await self._write_down(caller, action, resource, error.kind.name.lower())
            raise
        await self._write_down(caller, action, resource, "done")
        return done

    async def _write_down(self, caller: KnownCaller, action: Action, resource: str, result: str) -> None:
        await self.audit.write(
            Deed(
                time_ms=self._clock.wall_ms(), principal=str(caller.principal), credential=caller.key_id,
                address=caller.address, door=caller.door.value, action=action.value,
                resource=resource[:MOST_RESOURCE], result=result, request=caller.request,
                position=self._catalog.machine.position,
            )
        )  # fmt: skip

    # -- life --------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AccessService"]:
        """Serve for as long as the block runs; what was begun is written down before it ends."""
        await self.audit.open()
        if not self.required and not self._loopback:
            logger().warning(telemetry.OPENED)
        try:
            yield self
        finally:
            await asyncio.gather(*self._deeds, return_exceptions=True)
            await self.audit.close()

    async def run(self) -> None:
        """End the streams of keys that work no more, and write down when keys were used, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._touch())
            group.create_task(self._mend())

    async def _watch(self) -> None:
        while True:
            keys = self._catalog.machine.access.keys
            telemetry.KEYS.set(sum(not key.revoked_ms for key in keys.values()))
            telemetry.OPEN.set(not self.required)
            self.streams.look(self.required)
            await self.streams.wait()

    async def _touch(self) -> None:
        while True:
            await self._clock.sleep(self._settings.touch_interval.total_seconds())
            await self.write_uses()

    async def write_uses(self) -> None:
        """Let the log know which keys were used since it was last told."""
        used, self._used = self._used, {}
        rows = [Touch(id=key_id, used_ms=used_ms) for key_id, used_ms in sorted(used.items())]
        for first in range(0, len(rows), TOUCHED_AT_ONCE):
            try:
                await self._catalog.propose(TouchKeys(rows=tuple(rows[first : first + TOUCHED_AT_ONCE])))
            except DrayError as error:
                logger().info(telemetry.TOUCH_FAILED, error=str(error))

    async def _mend(self) -> None:
        while True:
            await self._clock.sleep(MEND_S)
            await self.audit.mend()

    async def _secret(self) -> bytes:
        """The cluster's secret, made now if nobody has asked for one before; the first one stays."""
        if not self._catalog.machine.access.secret:
            await self._catalog.sync()
        if not self._catalog.machine.access.secret:
            await self._catalog.propose(SetSecret(secret=self._entropy.random_bytes(SECRET_BYTES)))
        if not self._catalog.machine.access.secret:
            raise Unavailable("the cluster has no secret yet: try again")
        return self._catalog.machine.access.secret


def _count(door: Entrance, result: str) -> None:
    telemetry.ATTEMPTS.labels(door.value, result).inc()


def bearer(headers: Sequence[str]) -> str | None:
    """The key in the values of the `Authorization` header; None if there is none.

    Raises:
        Unauthenticated: another scheme, or two of them.
    """
    if not headers:
        return None
    scheme, _, key = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer":
        raise Unauthenticated("the Authorization header is `Bearer dray_...`, once")
    return key.strip()
