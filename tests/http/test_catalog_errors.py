"""What readers of the catalog are told in Iceberg's form when something is wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette

from dray.access.errors import OverLimit
from dray.errors import Corrupt, DrayError, NotFound, Unavailable
from dray.servers.http.catalog import NoSuchNamespace, ReadOnlyCatalog, catalog_routes
from dray.servers.http.gate import HttpGuard
from tests.access.stand import stand


class EmptyOfSomething(NoSuchNamespace):
    """A class that no table knows."""


class NoTables:
    """A catalog that fails."""

    def __init__(self, error: DrayError) -> None:
        self.error = error

    async def namespaces(self):
        raise self.error

    async def tables(self, namespace, after, limit):
        raise self.error

    async def exists(self, namespace, name):
        raise self.error

    async def table(self, namespace, name):
        raise self.error


@asynccontextmanager
async def asking(error: DrayError) -> AsyncIterator[httpx.AsyncClient]:
    async with stand() as here:
        app = Starlette(routes=catalog_routes(NoTables(error), HttpGuard(here.access)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://broker") as api:
            yield api


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (Unavailable("x"), 503, "ServiceUnavailableException"),
        (OverLimit("x"), 503, "ServiceUnavailableException"),
        (NotFound("x"), 404, "NotFoundException"),
        (NoSuchNamespace("x"), 404, "NoSuchNamespaceException"),
        (EmptyOfSomething("x"), 404, "NoSuchNamespaceException"),
        (ReadOnlyCatalog("x"), 406, "UnsupportedOperationException"),
        (Corrupt("x"), 500, "InternalServerError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DrayError) else None,
)
async def test_an_error_is_told_as_iceberg_does_and_what_may_be_tried_again_says_when(error, status, type_):
    """HE2"""
    async with asking(error) as api:
        answer = await api.get("/iceberg/v1/namespaces")
        told = answer.json()["error"]
        assert (answer.status_code, told["code"], told["type"]) == (status, status, type_)
        assert ("retry-after" in answer.headers) is (status == 503)
        seen = await api.head("/iceberg/v1/namespaces/topics/tables/orders")
        assert (seen.status_code, seen.content) == (status, b"")
        assert ("retry-after" in seen.headers) is (status == 503)


@pytest.mark.parametrize(
    ("error", "type_"), [(NotFound("x"), "NoSuchTableException"), (NoSuchNamespace("x"), "NoSuchNamespaceException")]
)
async def test_what_is_not_found_where_a_table_is_asked_for_is_the_table(error, type_):
    async with asking(error) as api:
        answer = await api.get("/iceberg/v1/namespaces/topics/tables/orders")
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, type_)
