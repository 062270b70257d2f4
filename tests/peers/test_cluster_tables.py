"""Tables and Spark against a cluster: a database for the log and the catalog, a bucket for all else, no directory."""

import ast
import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from dray.pipeline.options import parse_options
from dray.pipeline.planning import plan_read
from dray.pipeline.source import PlannedTask
from tests.objects.servers import S3Server, versity
from tests.peers.test_clusters import database
from tests.peers.test_tables_on_s3 import settings_of
from tests.pipeline.compacting import rows_of
from tests.pipeline.parts import broker_process, consumed, create, numbered, produce
from tools.peers.etcd import etcd
from tools.peers.postgres import Postgres, postgres

pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[2]
DRAYD = str(Path(sys.executable).with_name("drayd"))
LIMIT_S = 600
PASSWORD = "a-password-of-a-database"
"""The server of the tests asks for none; nobody may show it all the same."""
MASTER = "compaction.master=local[2,4]"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


def environ(bucket: S3Server) -> dict[str, str]:
    """Of a machine: credentials by the usual variables, and nothing else of ours."""
    store = bucket.options
    return os.environ | {
        "AWS_ENDPOINT_URL": store.endpoint, "AWS_REGION": store.region, "AWS_ACCESS_KEY_ID": store.access_key,
        "AWS_SECRET_ACCESS_KEY": store.secret_key, "PGPASSWORD": PASSWORD, "PYTHONPATH": str(ROOT),
    }  # fmt: skip


class Machine:
    """One that runs tools and has an empty directory, in which they begin."""

    def __init__(self, home: Path, settings: list[str], bucket: S3Server) -> None:
        home.mkdir()
        self._home = home
        self._flags = [word for one in settings for word in ("--set", one)]
        self._environ = environ(bucket)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [DRAYD, *arguments, "--format", "json", *self._flags]
        return subprocess.Popen(
            command, cwd=self._home, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def drayd(self, *arguments: str, code: int = 0) -> dict[str, object]:
        return ended(self.start(*arguments), code)

    def python(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments], cwd=self._home, env=self._environ, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip


def ended(process: "subprocess.Popen[str]", code: int = 0) -> dict[str, object]:
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, out + err[-3_000:]
    assert PASSWORD not in out + err
    return json.loads(out)


@pytest.mark.long
def test_two_machines_compact_a_cluster_and_a_third_reads_table_and_tail(
    server: Postgres, bucket: S3Server, tmp_path: Path
) -> None:
    """R-136, R-143, SP5, CP3: each record once, whoever compacts; no secret in plan, output or what Spark shows."""
    name = bucket.new_bucket()
    log, address = asyncio.run(database(server, "compacted")), f"s3://{name}"
    settings = [
        *settings_of(bucket, name), f"log.url={log}", "cluster.domains=2", f"table.catalog={log}", MASTER,
        "compaction.max_age=1s", "broker.data=nothing-of-a-broker",
    ]  # fmt: skip
    one, two, third = (Machine(tmp_path / name, settings, bucket) for name in ("one", "two", "three"))
    with ExitStack() as stack:
        brokers = [stack.enter_context(broker_process(tmp_path / f"b{n}", *settings[:-2])) for n in (1, 2)]
        create(brokers[0].bootstrap, "orders", partitions=4)
        for part, broker in enumerate(brokers):
            produce(broker.bootstrap, "orders", numbered(200 * part, 200, 4))
        begun = [machine.start("compactor", "--once", "--topic", "orders") for machine in (one, two)]
        told = [topic for found in [ended(process) for process in begun] for topic in found["topics"]]
        done = [topic for topic in told if topic["state"] == "done"]
        assert sum(topic["records"] for topic in done) == 400, told
        compacted = consumed(brokers[0].bootstrap, "orders", 4)
        assert catalog_rows(log, bucket) == compacted
        status = third.drayd("admin", "table", "status", "orders")
        assert (status["rows"], status["state"]) == (400, "ok")
        produce(brokers[1].bootstrap, "orders", numbered(400, 20, 4))
        everything = consumed(brokers[0].bootstrap, "orders", 4)
        assert len(everything) == 420
        events = tmp_path / "events"
        events.mkdir()
        ran = third.python("-m", "tests.peers.cluster_job", log, address, "orders", str(events))
        assert ran.returncode == 0, ran.stderr[-3_000:]
        rows = [ast.literal_eval(line) for line in ran.stdout.splitlines() if line.startswith("(")]
        assert sorted(rows) == sorted((row.partition, row.offset, row.key, row.value) for row in everything)
        shown = ran.stdout + ran.stderr + _text_of(events)
        assert "cluster job" in shown, "the test looks at what Spark shows"
        assert PASSWORD not in shown
        assert bucket.options.secret_key not in shown
        read = f"import dray; print(dray.read('orders', {log!r}, options={{'objects': {address!r}}}).num_rows)"
        assert third.python("-c", read).stdout == "420\n"
        by_broker = f"import dray; print(dray.read('orders', {brokers[1].http!r}).num_rows)"
        assert third.python("-c", by_broker).stdout == "420\n"
        assert "plan-" in json.dumps(third.drayd("admin", "pins", "ls", "-")), "the plan of Spark is held in the log"


def _text_of(events: Path) -> str:
    return "".join(file.read_bytes().decode(errors="replace") for file in events.rglob("*") if file.is_file())


def catalog_rows(log: str, bucket: S3Server) -> list[object]:
    """What PyIceberg itself finds, by the database and the bucket."""
    store = bucket.options
    access = {
        "s3.endpoint": store.endpoint, "s3.access-key-id": store.access_key,
        "s3.secret-access-key": store.secret_key, "s3.region": store.region,
    }  # fmt: skip
    uri = log.replace("postgresql://", "postgresql+psycopg://")
    table = load_catalog("dray", type="sql", uri=uri, **access).load_table(("topics", "orders"))
    return sorted(rows_of("orders", table.scan().to_arrow()))


def test_a_plan_of_an_etcd_cluster_holds_no_secret_and_a_catalog_in_a_directory_is_refused(
    bucket: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What travels to executors is names and places; and what to set instead is said."""
    name = bucket.new_bucket()
    with etcd() as members:
        log = members.url("cluster")
        settings = [*settings_of(bucket, name), f"log.url={log}", "cluster.domains=2", MASTER]
        with broker_process(tmp_path / "b", *settings) as broker:
            create(broker.bootstrap, "orders", partitions=2)
            produce(broker.bootstrap, "orders", numbered(0, 100, 2))
            tool = Machine(tmp_path / "tool", settings, bucket)
            refused = tool.drayd("compactor", "--once", code=2)
            assert "set table.catalog to postgresql://USER@HOST/DATABASE" in json.dumps(refused)
            for name_of, value in environ(bucket).items():
                monkeypatch.setenv(name_of, value)
            options = parse_options({"subscribe": "orders", "log": log, "objects": f"s3://{name}"})
            plan = asyncio.run(plan_read(options))
            packed = pickle.dumps([PlannedTask(plan.address, pieces) for pieces in plan.tasks])
            assert bucket.options.secret_key.encode() not in packed
            assert sum(piece.end - piece.start for pieces in plan.tasks for piece in pieces) >= 100
            found = {one["check"]: one["saw"] for one in tool.drayd("doctor")["findings"]}
            assert "3 domains" in found["log"]
