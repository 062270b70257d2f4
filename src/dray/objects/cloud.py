"""Objects in S3, GCS or Azure, through obstore.

One call of the port is one request: obstore's own retries are off, so that
deadlines, budget and metrics are those of `dray.objects.retry`, and so that
a put is sent once per attempt and its outcome is known or typed as unknown.

obstore reports a 409 (a concurrent request of the same name; nothing was
decided) like a 412 (the name exists). Both are settled by reading back: no
object means a 409, and the put is to be tried again.
"""

import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from dray.buffers import Buffer
from dray.errors import DrayError
from dray.objects.paths import check_name, check_prefix
from dray.objects.port import AlreadyExists, Denied, NoSuchObject, ObjectInfo, PutUnknown, StoreUnavailable
from dray.objects.ranges import check_length, check_range, short
from dray.objects.readback import holds

if TYPE_CHECKING:
    from obstore import Bytes, ObjectMeta
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

    CloudStore = S3Store | GCSStore | AzureStore | MemoryStore

_LIST_CHUNK: Final = 1000
_STATUS = re.compile(r"status code: (\d{3})")
_SIGNED = re.compile(r"\b(sig|[Ss]ignature|X-Amz-Signature|X-Goog-Signature|X-Amz-Security-Token)=[^&\s\"',)]+")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_ROLES: Final = ("169.254.169.254", "169.254.170.", "metadata.google.internal")
"""Where obstore asks for the role of the machine, when nothing else gave credentials."""
_NO_CREDENTIALS: Final = (
    "no credentials for the store were found: give them by the settings (objects.access_key_id and its secret, "
    "objects.credentials_file), by the environment or files of the cloud's own tools, or by a role of this machine"
)
_RANGE_ERRORS: Final = ("Invalid range", "InvalidRangeRequest", "non-partial response")
_NO_BUCKET: Final = frozenset(("NoSuchBucket", "ContainerNotFound"))
_CREDENTIALS: Final = frozenset(("ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired"))


class NoBucket(Denied):
    """The bucket or container does not exist: create it, or correct the address."""


class NoCredentials(StoreUnavailable):
    """Nobody gave any, and this machine has no role that would: a short failure of its metadata looks the same."""


class CloudObjects:
    """One prefix of one bucket."""

    def __init__(self, store: "CloudStore") -> None:
        self._store = store

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        check_name(path)
        try:
            # An empty list would be no body at all; a list of buffers is sent without joining it.
            await self._store.put_async(path, list(parts) or b"", use_multipart=False, mode="create")
        except (AlreadyExistsError, PreconditionError) as error:
            await self._settle(path, parts, error)
        except (BaseError, OSError) as error:
            raise _put_error(error, path) from _cause(error)

    async def _settle(self, path: str, parts: Sequence[Buffer], cause: Exception) -> None:
        match await holds(self, path, parts):
            case True:
                return  # O3
            case False:
                raise AlreadyExists("the name holds other bytes", name=path) from cause
            case None:
                raise StoreUnavailable("a concurrent request of the same name: try again", name=path) from cause

    async def get(self, path: str, start: int = 0, end: int | None = None) -> memoryview:
        check_range(path, start, end)
        check_name(path)
        if start == end:
            return await self._empty(path, start, end)
        try:
            received = memoryview(await self._received(path, start, end))
        except (NotFoundError, FileNotFoundError) as error:
            if _code(error) in _NO_BUCKET:
                raise _error(error, "get", path) from _cause(error)
            raise NoSuchObject("no such object", name=path) from _cause(error)
        except (BaseError, OSError) as error:
            problem = _error(error, "get", path)
            if isinstance(problem, StoreUnavailable) and _is_range_error(error):
                return await self._empty(path, start, end)
            raise problem from _cause(error)
        if end is not None:
            check_length(path, received.nbytes, start, end)
        return received

    async def _received(self, path: str, start: int, end: int | None) -> "Bytes":
        if end is not None:
            return await self._store.get_range_async(path, start=start, end=end)
        result = await self._store.get_async(path, options={"range": {"offset": start}} if start else None)
        received = await result.bytes_async()
        if (promised := result.range[1] - result.range[0]) != len(received):
            raise StoreUnavailable("the answer is not as long as it says", name=path, promised=promised)
        return received

    async def _empty(self, path: str, start: int, end: int | None) -> memoryview:
        """The answer to a range without bytes, which stores refuse whether or not it lies inside the object."""
        size = (await self.head(path)).size
        if start > size or (end is not None and end > size):
            raise short(path, start, end, size)
        if start < (size if end is None else end):
            raise StoreUnavailable("the store does not answer ranges", name=path, start=start, end=end)
        return memoryview(b"")

    async def head(self, path: str) -> ObjectInfo:
        try:
            return _info(await self._store.head_async(check_name(path)))
        except (NotFoundError, FileNotFoundError) as error:
            raise NoSuchObject("no such object", name=path) from _cause(error)
        except (BaseError, OSError) as error:
            raise _error(error, "head", path) from _cause(error)

    async def delete(self, path: str) -> None:
        try:
            await self._store.delete_async(check_name(path))
        except (NotFoundError, FileNotFoundError):
            return
        except (BaseError, OSError) as error:
            raise _error(error, "delete", path) from _cause(error)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        directory, _, _ = check_prefix(prefix).rpartition("/")  # obstore takes whole segments only
        last = ""
        try:
            async for chunk in self._store.list(directory or None, chunk_size=_LIST_CHUNK):
                for meta in chunk:
                    found = _info(meta)
                    if not found.path.startswith(prefix):
                        continue
                    if found.path <= last:
                        raise StoreUnavailable("the store lists out of order", name=found.path, after=last)
                    last = found.path
                    yield found
        except (BaseError, OSError) as error:
            raise _error(error, "list", prefix) from _cause(error)

    async def close(self) -> None:
        pass


def _cause(error: Exception) -> Exception:
    """What obstore says, for logs: an address that is signed by its query gives access to who reads it."""
    text = str(error)
    return type(error)(_SIGNED.sub(r"\1=hidden", text)) if _SIGNED.search(text) else error


def _info(meta: "ObjectMeta") -> ObjectInfo:
    return ObjectInfo(path=meta["path"], size=meta["size"], modified_ms=int(meta["last_modified"].timestamp() * 1000))


def _put_error(error: Exception, path: str) -> DrayError:
    """Nothing happened only where that is sure: refused before it was read, or never sent."""
    problem = _error(error, "put", path)
    if not isinstance(problem, StoreUnavailable):
        return problem
    status, code = _status(error), _code(error)
    never_sent = "kind: Connect," in str(error)
    refused = status is not None and (status < 500 or code == "SlowDown")
    if never_sent or refused:
        return problem
    return PutUnknown("the store did not confirm the put", name=path, **problem.facts)  # E1


def _error(error: Exception, op: str, name: str) -> DrayError:
    """What the caller does next. The text of a request stays in the cause: it is long, and not for users."""
    status, code = _status(error), _code(error)
    if any(place in str(error) for place in _ROLES):
        return NoCredentials(_NO_CREDENTIALS, op=op, name=name)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403) or code in _CREDENTIALS:
        return Denied(
            "the store refused the credentials: correct them, or allow this operation",
            op=op,
            name=name,
            code=code or status,
        )
    if status == 404 or isinstance(error, NotFoundError | FileNotFoundError):
        return NoBucket("the bucket does not exist: create it, or correct the address", op=op, name=name)
    if "incorrectly configured region" in str(error):
        return Denied("the store answers for another region: correct the region or the endpoint", op=op, name=name)
    return StoreUnavailable("the store failed", op=op, status=status or "none", code=code or "none")


def _is_range_error(error: Exception) -> bool:
    text = str(error)
    return _status(error) == 416 or any(sign in text for sign in _RANGE_ERRORS)


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return None if found is None else int(found[1])


def _code(error: Exception) -> str | None:
    found = _CODE.search(str(error))
    return None if found is None else found[1]
