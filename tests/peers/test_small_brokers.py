"""Brokers that have few domains loaded, on logs that others keep."""

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.durability.small import serve_while_domains_come_and_go, small_brokers
from tools.peers.etcd import Etcd, etcd
from tools.peers.postgres import USER, Postgres, postgres

pytestmark = pytest.mark.peers


@pytest.fixture
def one_etcd() -> Iterator[Etcd]:
    with etcd() as running:
        yield running


@pytest.fixture
def database() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


def test_domains_come_and_go_on_etcd(one_etcd: Etcd, tmp_path: Path) -> None:
    """DL1, DL2, SV6, RG7"""
    with small_brokers(tmp_path, one_etcd.url("small")) as brokers:
        serve_while_domains_come_and_go(brokers)


async def test_domains_come_and_go_on_postgresql(database: Postgres, tmp_path: Path) -> None:
    """DL1, DL2, SV6, RG7"""
    connection = await asyncpg.connect(database.url)
    await connection.execute("create database small")
    await connection.close()
    with small_brokers(tmp_path, f"postgresql://{USER}@127.0.0.1:{database.port}/small") as brokers:
        serve_while_domains_come_and_go(brokers)
