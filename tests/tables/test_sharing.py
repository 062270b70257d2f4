"""Metadata that is parsed once and not copied: the same as PyIceberg makes of it, and never older than the catalog."""

import pytest
from pyiceberg.table.update import update_table_metadata
from pyiceberg.table.update.snapshot import ExpireSnapshots

from dray.tables.catalog import PARSED, SharingSqlCatalog
from dray.tables.errors import TableLost
from dray.tables.table import TableOwner
from dray.tables.transaction import Staged, updated
from tests.tables.warehouse import ORDERS, Warehouse, appending, span, warehouse


@pytest.fixture
def house(tmp_path):
    with warehouse(tmp_path) as made:
        yield made


def staged_change(house: Warehouse) -> Staged:
    """A file more, a property, and a snapshot less."""
    table = house.tables.find(ORDERS)
    assert table is not None
    staged = Staged(table)
    with staged.update_snapshot().merge_append() as producer:
        producer.append_data_file(house.file(0, 100, 10).entry())
    staged.set_properties({"colour": "blue"})
    ExpireSnapshots(transaction=staged).by_ids([table.metadata.snapshots[0].snapshot_id]).commit()
    return staged


def test_what_is_staged_and_written_is_what_the_library_makes_of_the_same_updates(house):
    for start in range(0, 40, 10):
        house.append(0, start, 10)
    staged = staged_change(house)
    table, before = staged._table, staged._table.metadata.model_dump_json()
    assert staged.table_metadata == update_table_metadata(table.metadata, staged._updates)
    theirs = update_table_metadata(table.metadata, staged._updates, metadata_location=table.metadata_location)
    assert updated(table.metadata, table.metadata_location, staged._updates) == theirs
    assert len(theirs.snapshots) == 4
    assert table.metadata.model_dump_json() == before, "what was there is shared and must not change"


def test_a_commit_parses_the_metadata_of_its_table_once(house, monkeypatch):
    house.append(0, 0, 10)
    parsed = []
    parse = SharingSqlCatalog.__mro__[1]._convert_orm_to_iceberg

    def counted(self, orm_table):
        parsed.append(orm_table.metadata_location)
        return parse(self, orm_table)

    monkeypatch.setattr(SharingSqlCatalog.__mro__[1], "_convert_orm_to_iceberg", counted)
    house.append(0, 10, 10)
    assert len(parsed) == 1


def test_a_commit_of_somebody_else_is_seen_at_the_next_look(house):
    house.append(0, 0, 10)
    house.tables.find(ORDERS)
    with warehouse(house.root) as other:
        other.append(0, 10, 10)
    assert house.rows() == span(0, 0, 20)
    house.append(0, 20, 10)
    assert house.rows() == span(0, 0, 30)


def test_metadata_that_is_gone_is_missed_although_it_was_parsed(house):
    house.append(0, 0, 10)
    table = house.tables.find(ORDERS)
    assert table is not None
    house.store.delete(house.store.name_of(table.metadata_location))
    with pytest.raises(TableLost):
        house.tables.find(ORDERS)


def test_only_some_tables_are_remembered(house):
    for number in range(PARSED + 3):
        owner = TableOwner(name=f"t{number}", topic_id=bytes([number] * 16), cluster_id="c1")
        house.tables.commit(owner, appending(house.file(0, 0, 1, f"-{number}")), 1)
    assert len(house.catalog._parsed) == PARSED
