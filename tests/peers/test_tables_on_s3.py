"""Tables in a bucket of a real S3 server: compacted there, and read there by PyIceberg and by Spark."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.objects.servers import S3Server, versity
from tests.pipeline.compacting import rows_of
from tests.pipeline.parts import Row, broker_process, consumed, create, numbered, produce

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[2]
LIMIT_S = 400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


def settings_of(server: S3Server, bucket: str) -> list[str]:
    options = server.options
    return [
        f"objects.url=s3://{bucket}", f"objects.endpoint={options.endpoint}", f"objects.region={options.region}",
        f"objects.access_key_id={options.access_key}", f"objects.secret_access_key={options.secret_key}",
        "objects.allow_http=true",
    ]  # fmt: skip


def drayd(*arguments: str) -> dict[str, object]:
    command = [str(Path(sys.executable).with_name("drayd")), *arguments, "--format", "json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3_000:]
    return json.loads(ran.stdout)


def by_spark(server: S3Server, directory: Path, topic: str, address: str) -> list[Row]:
    """What `format("dray")` reads, in a driver of its own."""
    options = server.options
    environ = os.environ | {
        "AWS_ENDPOINT_URL": options.endpoint, "AWS_REGION": options.region, "AWS_ACCESS_KEY_ID": options.access_key,
        "AWS_SECRET_ACCESS_KEY": options.secret_key,
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.pipeline.job", "read", "local[2,4]", str(directory), topic, address]
    ran = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3_000:]
    found = [ast.literal_eval(line)[0] for line in ran.stdout.splitlines() if line.startswith("((")]
    return sorted(Row(*columns[:-1], tuple(columns[-1]) if columns[-1] else None) for columns in found)


def by_pyiceberg(server: S3Server, uri: str, kind: str, topic: str) -> list[Row]:
    options = server.options
    access = {
        "s3.endpoint": options.endpoint, "s3.access-key-id": options.access_key,
        "s3.secret-access-key": options.secret_key, "s3.region": options.region,
    }  # fmt: skip
    table = load_catalog("dray", type=kind, uri=uri, **access).load_table(("topics", topic))
    assert all(task.file.file_path.startswith("s3://") for task in table.scan().plan_files())
    return sorted(rows_of(topic, table.scan().to_arrow()))


def test_a_topic_in_a_bucket_is_compacted_and_read_by_everybody(server: S3Server, tmp_path: Path) -> None:
    """R-136, R-143, R-165: files and what is no file yet; a bucket and no directory of objects."""
    bucket, directory = server.new_bucket(), tmp_path / "data"
    settings = settings_of(server, bucket)
    with broker_process(directory, *settings) as broker:
        create(broker.bootstrap, "orders", partitions=2)
        odd = [(None, None, None, 0), (b"", b"", [("a", b"1"), ("a", None)], 1)]
        produce(broker.bootstrap, "orders", [*odd, *numbered(0, 398, 2)])
        flags = [word for one in settings for word in ("--set", one)]
        told = drayd(
            "compactor", "--data", str(directory), "--once", "--topic", "orders", *flags,
            "--set", "compaction.master=local[2,4]",
        )  # fmt: skip
        assert [(one["records"], one["files"], one["state"]) for one in told["topics"]] == [(400, 2, "done")]
        compacted = consumed(broker.bootstrap, "orders", 2)
        catalog = f"sqlite:///{directory / 'tables' / 'catalog.db'}"
        assert by_pyiceberg(server, catalog, "sql", "orders") == compacted
        assert by_pyiceberg(server, f"{broker.http}/iceberg", "rest", "orders") == compacted
        produce(broker.bootstrap, "orders", numbered(400, 20, 2))
        everything = consumed(broker.bootstrap, "orders", 2)
        assert len(everything) == 420
        assert by_spark(server, directory, "orders", f"s3://{bucket}") == everything
