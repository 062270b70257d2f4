"""Spark with Apache Iceberg's own jar finds the tables of a broker on its HTTP port."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.compacting import compactor
from tests.pipeline.parts import broker_process, consumed, create, produce
from tools.peers.iceberg_spark import jar

pytestmark = pytest.mark.peers


def test_spark_reads_the_rows_prunes_the_files_and_changes_nothing(tmp_path: Path) -> None:
    """R-136, R-137, HT3"""

    async def compact() -> None:
        async with compactor(tmp_path / "data") as running:
            await running.cycle("orders.eu")

    with broker_process(tmp_path / "data") as broker:
        create(broker.bootstrap, "orders.eu", partitions=2)
        for first in (0, 100, 200):
            produce(broker.bootstrap, "orders.eu", [(b"k", b"v%d" % n, None, n % 2) for n in range(first, first + 100)])
            asyncio.run(compact())
        command = [sys.executable, "-m", "tests.peers.iceberg_job", str(jar()), f"{broker.http}/iceberg"]
        ran = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
        )
        assert ran.returncode == 0, ran.stderr[-3_000:]
        found = json.loads(ran.stdout.splitlines()[-1])
        expected = consumed(broker.bootstrap, "orders.eu", 2)
    assert found["tables"] == ["orders.eu"]
    rows = [(row.partition, row.offset, row.key.hex().upper(), row.value.hex().upper()) for row in expected]
    assert sorted(map(tuple, found["rows"])) == rows
    assert (found["all_files"], found["some_files"]) == (6, 1)
    assert found["refused"] == [True, True, True]
