"""Tables in a REST catalog: Apache Iceberg's own server."""

from collections.abc import Iterator

import pytest
import requests
from pyiceberg.catalog import load_catalog

from tests.tables.test_table import instead, landed
from tests.tables.warehouse import ORDERS, Warehouse, span, warehouse
from tools.peers import iceberg_rest

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with iceberg_rest.running(tmp_path_factory.mktemp("rest")) as address:
        yield address


@pytest.fixture(scope="module")
def house(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with warehouse(tmp_path_factory.mktemp("house"), kind=address) as made:
        made.append(0, 0, 10)
        yield made


def test_others_find_the_table_in_the_catalog_and_read_its_rows(house: Warehouse, address: str) -> None:
    """R-136"""
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
