"""Tables in a REST catalog: Apache Iceberg's own server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import requests
from pyiceberg.catalog import load_catalog

from dray.tables import catalog
from tests.pipeline.compacting import Running, compactor
from tests.pipeline.parts import Row, broker_process, consumed, create, numbered, produce
from tests.tables.faulty_rest import Fault, FaultyRest
from tests.tables.test_table import instead, landed
from tests.tables.warehouse import ORDERS, Warehouse, span, warehouse
from tools.peers import iceberg_rest

pytestmark = pytest.mark.peers
T = TypeVar("T")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with iceberg_rest.running(tmp_path_factory.mktemp("rest")) as address:
        yield address


@pytest.fixture(scope="module")
def line(address: str) -> Iterator[FaultyRest]:
    with FaultyRest(address) as line:
        yield line


@pytest.fixture(scope="module")
def house(line: FaultyRest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with warehouse(tmp_path_factory.mktemp("house"), kind=line.address) as made:
        made.append(0, 0, 10)
        yield made


def test_others_find_the_table_in_the_catalog_and_read_its_rows(house: Warehouse, address: str) -> None:
    """R-136, R-162"""
    theirs = load_catalog("anything", type="rest", uri=address).load_table(house.tables.identifier(ORDERS.name))
    assert sorted(theirs.scan().to_arrow()["offset"].to_pylist())[:10] == list(range(10))
    assert theirs.properties["gc.enabled"] == "false"


def test_of_two_writers_of_one_range_the_paused_one_adds_nothing(house: Warehouse) -> None:
    """R-146, R-159, E-26, TF1: it slept between its look at the table and its commit."""
    stock = house.catalog.commit_table
    rows = len(house.rows())

    def after_the_other(real):
        house.catalog.commit_table = stock
        house.append(0, rows, 10, mark="-other")
        return real()

    instead(house, after_the_other)
    late = house.append(0, rows, 10)
    assert list(late.overtaken) == [0]
    assert house.rows() == span(0, 0, rows + 10)


def test_a_commit_whose_answer_was_lost_is_found_and_not_made_twice(house: Warehouse) -> None:
    """R-159, TT2"""
    stock, rows = house.catalog.commit_table, len(house.rows())
    sent = instead(house, landed(requests.ConnectionError("cut")))
    try:
        house.append(0, rows, 10)
    finally:
        house.catalog.commit_table = stock
    assert len(sent) == 1
    assert house.rows() == span(0, 0, rows + 10)


WAYS = {
    "cut": Fault(lands=False), "silent": Fault(lands=False, hangs=True), "409": Fault(lands=False, status=409),
    "429": Fault(lands=False, status=429), "500": Fault(lands=False, status=500), "502": Fault(lands=False, status=502),
    "503": Fault(lands=False, status=503), "504": Fault(lands=False, status=504),
}  # fmt: skip


@pytest.mark.parametrize("lands", [False, True], ids=["not landed", "landed"])
@pytest.mark.parametrize("way", WAYS)
def test_a_commit_whose_answer_is_lost_or_wrong_on_its_way_is_there_once(
    house: Warehouse, line: FaultyRest, monkeypatch: pytest.MonkeyPatch, way: str, lands: bool
) -> None:
    """R-156, R-160, TT1, TT2: by a line that cuts, keeps silent or answers for a server that has done it, or not."""
    monkeypatch.setattr(catalog, "ANSWER_S", 2)
    rows, fault = len(house.rows()), WAYS[way]
    line.at_commits(Fault(lands=lands, status=fault.status, hangs=fault.hangs))
    house.append(0, rows, 10)
    assert house.rows() == span(0, 0, rows + 10)
    house.append(0, rows + 10, 5)
    assert house.rows() == span(0, 0, rows + 15)


def test_a_compactor_settles_with_the_catalog_what_it_was_not_told(
    line: FaultyRest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R-156, CP4, T13: landed and silent, cut off, then away for the rest of the cycle; the next one finishes it."""
    monkeypatch.setattr(catalog, "ANSWER_S", 2)
    unheard = [Fault(lands=True, hangs=True)]

    def away(method: str, path: str) -> Fault | None:
        """The commit lands, and nobody is told; from then on the table cannot even be asked for."""
        if not path.endswith("/rest"):
            return None
        if unheard:
            return unheard.pop() if method == "POST" else None
        return Fault(lands=False)

    async def cycle(running: Running) -> list[str]:
        return (await running.cycle("rest"))["rest"].failures

    async def cycle_and_look(running: Running) -> tuple[list[str], list[Row]]:
        return await cycle(running), running.rows("rest")

    with broker_process(tmp_path / "data") as broker:
        create(broker.bootstrap, "rest", partitions=2)
        produce(broker.bootstrap, "rest", numbered(0, 100, 2))
        expected = consumed(broker.bootstrap, "rest", 2)
        line.fault = away
        assert asyncio.run(_with(broker.directory, line, cycle))
        line.fault = lambda _method, _path: None
        assert asyncio.run(_with(broker.directory, line, cycle_and_look)) == ([], expected)
        assert consumed(broker.bootstrap, "rest", 2) == expected


async def _with(directory: Path, line: FaultyRest, work: Callable[[Running], Awaitable[T]]) -> T:
    async with compactor(directory, catalog=line.address) as running:
        return await work(running)
