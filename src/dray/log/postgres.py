"""A log in a PostgreSQL database: one row an entry, and one row that orders them.

    dray_log    log text | tail bigint | cut bigint         one row a domain; its lock orders appends
    dray_entry  log text | position bigint | entry bytea    positions are dense

An append is one statement: it takes the next position under the lock of the
head's row, inserts, and wakes who listens. The lock is held until the commit
is flushed, so entries become visible in their order and only when they are
durable (LG1, LG2). What a server may be told to leave out of that (`fsync`,
`synchronous_commit`) is refused, or set for our connections.

Calls share one connection, one after the other; a follower has its own.

Invariants
    LG23  An append is sent once. Whatever ends it after it was sent, but a
          refusal by the server, is `LostReply`.
    LG24  A follower delivers position after position without a hole; a log
          that ends before what was delivered, or lacks an entry, is
          `Corrupt`: the database was wiped, or went back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import asyncpg

from dray.errors import Conflict, Corrupt, Invalid, Unavailable
from dray.log.limits import MAX_ENTRY_BYTES, check_entry, gone_back, trimmed
from dray.log.port import LostReply, NotAppended, Position
from dray.log.telemetry import RECONNECTING
from dray.log.urls import PostgresLogs
from dray.telemetry import logger

CONNECT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 5.0
RETRY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to reach the server; a follower keeps to the last one."""
LOOK_SECONDS: Final = 1.0
"""A wake-up may be lost with its connection, so a follower looks by itself this often."""
PAGE: Final = 256
"""Entries that are read at once; at most 256 MiB of the largest."""
TRIM_ROWS: Final = 5_000

_SCHEMA: Final = """
create table if not exists dray_log(
    log text primary key, tail bigint not null default 0, cut bigint not null default 0);
create table if not exists dray_entry(
    log text not null, position bigint not null, entry bytea not null, primary key(log, position));
"""
_APPEND: Final = """
with head as (update dray_log set tail = tail + 1 where log = $1 returning tail),
     kept as (insert into dray_entry(log, position, entry) select $1, tail, $2 from head returning position)
select position, pg_notify($3, '') from kept
"""
_TAIL: Final = "select tail from dray_log where log = $1"
_HEAD: Final = "select tail, cut from dray_log where log = $1"
_PAGE: Final = "select position, entry from dray_entry where log = $1 and position > $2 order by position limit $3"
_BEGIN: Final = "update dray_log set tail = $2, cut = $2 where log = $1 and tail in (0, $2) returning tail"
_CUT: Final = "update dray_log set cut = greatest(cut, $2) where log = $1 and tail >= $2 returning tail"
_TRIM: Final = """
delete from dray_entry where log = $1 and position in (
    select position from dray_entry where log = $1 and position <= $2 order by position limit $3)
"""
_SCHEMA_LOCK: Final = 0x64726179  # "dray": who makes the tables at the same time waits

# What the server says before it has taken anything, or instead of it. A statement that it cancels may be among the
# others: its commit may have been on the way.
_REFUSALS: Final = (
    asyncpg.DataError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.UndefinedTableError,
    asyncpg.IntegrityConstraintViolationError,
)
_BROKEN: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)

Result = TypeVar("Result")


class DatabaseUnreachable(NotAppended):
    """No PostgreSQL server answers that takes writes; nothing was sent."""


class PostgresLog:
    """The log of one domain."""

    def __init__(
        self,
        url: PostgresLogs,
        domain: int,
        *,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._url = url
        self._name = f"domain-{domain:05d}"
        self._channel = f"dray_{domain}"
        self._max_entry_bytes = max_entry_bytes
        self._call_seconds = call_seconds
        self._calls: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()
        self._following: set[asyncpg.Connection] = set()

    @classmethod
    async def open(
        cls, url: PostgresLogs, domain: int, *, max_entry_bytes: int = MAX_ENTRY_BYTES,
        call_seconds: float = CALL_SECONDS,
    ) -> "PostgresLog":  # fmt: skip
        """The log, with its tables made if they are not there.

        Raises:
            Unavailable: no server answers.
            Invalid: the server does not keep what it acknowledges.
        """
        log = cls(url, domain, max_entry_bytes=max_entry_bytes, call_seconds=call_seconds)
        try:
            await log._prepare()
        except BaseException:
            await log.close()
            raise
        return log

    async def append(self, entry: bytes) -> Position:
        check_entry(entry, self._max_entry_bytes)
        async with self._turn:
            calls = await self._connected()
            try:
                with _cut_short(calls):
                    row = await calls.fetchrow(_APPEND, self._name, entry, self._channel, timeout=self._call_seconds)
            except _REFUSALS as error:
                raise NotAppended("the database refused the entry", reason=str(error)) from error
            except _BROKEN as error:
                calls.terminate()
                raise LostReply("the database did not answer; the entry may be in the log") from error  # LG23
            except asyncio.CancelledError:
                calls.terminate()  # its answer is for nobody
                raise
        if row is None:
            raise NotAppended("the log is gone from the database: restore it from a backup", log=self._name)
        return Position(row["position"])

    async def tail(self) -> Position:
        found = await self._repeat(lambda calls: calls.fetchval(_TAIL, self._name, timeout=self._call_seconds))
        if found is None:
            raise self._gone()
        return Position(found)

    async def trim(self, upto: Position) -> None:
        cut = await self._repeat(lambda calls: calls.fetchval(_CUT, self._name, upto, timeout=self._call_seconds))
        if cut is None:
            raise Invalid("cannot trim above the tail", upto=upto, tail=await self.tail())
        while True:
            done: str = await self._repeat(
                lambda calls: calls.execute(_TRIM, self._name, upto, TRIM_ROWS, timeout=self._call_seconds)
            )
            if done == "DELETE 0":
                return

    async def begin_behind(self, position: Position) -> None:
        """Let an empty log go on behind a position; to repeat it is harmless while nothing was appended."""
        done = await self._repeat(
            lambda calls: calls.fetchval(_BEGIN, self._name, position, timeout=self._call_seconds)
        )
        if done is None:
            raise Conflict("the log is not empty", log=self._name)

    async def follow(self, after: Position) -> AsyncIterator[tuple[Position, bytes]]:
        failures = 0
        while not self._closing.is_set():
            try:
                own = await self._connect()
            except Unavailable as error:
                await self._pause(failures, error)
                failures += 1
                continue
            self._following.add(own)
            try:
                with _cut_short(own):
                    bell = await self._listen(own)
                while not self._closing.is_set():
                    bell.clear()  # before the look: what comes during it rings again
                    with _cut_short(own):
                        page = await self._read(own, after)
                    failures = 0
                    for position, entry in page:
                        after = position
                        yield position, entry
                    if not page:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(LOOK_SECONDS):
                                await bell.wait()
            except _BROKEN as error:
                if not self._closing.is_set():
                    await self._pause(failures, error)
                    failures += 1
            finally:
                self._following.discard(own)
                own.terminate()

    async def close(self) -> None:
        self._closing.set()
        for one in [*self._following, *([] if self._calls is None else [self._calls])]:
            one.terminate()

    async def _prepare(self) -> None:
        async def make(calls: asyncpg.Connection) -> str:
            async with calls.transaction():
                await calls.execute("select pg_advisory_xact_lock($1)", _SCHEMA_LOCK)
                await calls.execute(_SCHEMA)
                await calls.execute("insert into dray_log(log) values($1) on conflict do nothing", self._name)
            kept: str = await calls.fetchval("show fsync")
            return kept

        if await self._repeat(make) != "on":
            raise Invalid(
                "the database does not keep what it acknowledges: set fsync=on in its configuration", log=str(self._url)
            )

    async def _read(self, own: "asyncpg.Connection", after: Position) -> list[tuple[Position, bytes]]:
        """The next entries, none at the end; LG24."""
        rows = await own.fetch(_PAGE, self._name, after, PAGE, timeout=self._call_seconds)
        page = [(Position(row["position"]), bytes(row["entry"])) for row in rows]
        if not page or page[0][0] != after + 1:
            head = await own.fetchrow(_HEAD, self._name, timeout=self._call_seconds)
            if head is None:
                raise self._gone()
            if head["tail"] < after:
                raise gone_back(after, head["tail"])  # LG25
            if head["cut"] > after:
                raise trimmed(after, Position(head["cut"] + 1))
        if [position for position, _ in page] != list(range(after + 1, after + 1 + len(page))):
            raise Corrupt("entries are missing in the database: restore it from a backup", after=after)
        return page

    async def _listen(self, own: "asyncpg.Connection") -> asyncio.Event:
        bell = asyncio.Event()
        own.add_termination_listener(lambda _: bell.set())
        await own.add_listener(self._channel, lambda *_: bell.set())
        return bell

    def _gone(self) -> Corrupt:
        return Corrupt("the log is gone from the database: restore it from a backup", log=self._name)

    async def _repeat(self, call: "Callable[[asyncpg.Connection], Awaitable[Result]]") -> Result:
        """A call that may be sent any number of times."""
        cause: BaseException | None = None
        for pause in (0.0, *RETRY_SECONDS):
            if self._closing.is_set():
                break
            await asyncio.sleep(pause)
            async with self._turn:
                try:
                    calls = await self._connected()
                except Unavailable as error:
                    cause = error
                    continue
                try:
                    with _cut_short(calls):
                        return await call(calls)
                except _REFUSALS as error:
                    raise Unavailable("the database refuses", reason=str(error)) from error
                except _BROKEN as error:
                    calls.terminate()
                    cause = error
                except asyncio.CancelledError:
                    calls.terminate()
                    raise
        raise Unavailable("the database does not answer", log=str(self._url)) from cause

    async def _connected(self) -> "asyncpg.Connection":
        """The connection for calls; only with the turn."""
        if self._calls is None or self._calls.is_closed():
            self._calls = await self._connect()
        return self._calls

    async def _connect(self) -> "asyncpg.Connection":
        if self._closing.is_set():
            raise DatabaseUnreachable("the log is closed")
        try:
            made = await asyncpg.connect(
                self._url.dsn,
                timeout=CONNECT_SECONDS,
                target_session_attrs="primary",  # a standby's tail is an old one (LG3)
                server_settings={"synchronous_commit": "on", "application_name": "dray"},
            )
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
            raise DatabaseUnreachable("the database does not let us in", reason=str(error)) from error
        except (*_BROKEN, asyncpg.TargetServerAttributeNotMatched) as error:
            raise DatabaseUnreachable("no database answers: is its server running?", log=str(self._url)) from error
        if self._closing.is_set():
            made.terminate()
            raise DatabaseUnreachable("the log is closed")
        return made

    async def _pause(self, failures: int, error: BaseException) -> None:
        """Wait a little, or until the log is closed."""
        pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
        logger(log=self._name).info(RECONNECTING, address=str(self._url), pause_s=pause, reason=str(error))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._closing.wait()


@contextmanager
def _cut_short(connection: "asyncpg.Connection") -> Iterator[None]:
    """A connection that ends between two steps of a call has no protocol: asyncpg trips over that, by chance."""
    try:
        yield
    except AttributeError as error:
        if not connection.is_closed():
            raise
        raise asyncpg.InterfaceError("the connection ended in the middle of a call") from error
