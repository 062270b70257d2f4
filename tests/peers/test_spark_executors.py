"""Spark whose executors are on another machine than its driver: in a network of their own, without a broker's files."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from dray.pipeline.java import find_java_home
from tests.objects.servers import versity
from tests.peers.test_cluster_tables import ROOT, environ
from tests.peers.test_partitions import in_etcd
from tests.peers.test_tables_on_s3 import settings_of
from tests.pipeline.parts import broker_process, consumed, create, numbered, produce
from tools.peers.network import Namespace, namespace
from tools.peers.process import serving, tool

pytestmark = [pytest.mark.peers, pytest.mark.long]

LIMIT_S = 600
START_S = 120
MASTER_PORT, PAGE_PORT = 7077, 8080
"""Nobody else listens in that network."""


@contextmanager
def spark_inside(apart: Namespace, hidden: Path, work: Path, environment: dict[str, str]) -> Iterator[str]:
    """A master and a worker in there, to whom a directory of this machine is empty; the master's address."""
    home = Path(pyspark.__file__).parent
    spark = str(home / "bin" / "spark-class")
    outer = [
        *apart.prefix,
        tool("unshare", "util-linux"),
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none "$0" && exec "$@"',
    ]
    address = f"spark://{apart.inside}:{MASTER_PORT}"
    commands = {
        "master": ["org.apache.spark.deploy.master.Master", "--host", apart.inside, "--port", str(MASTER_PORT),
                   "--webui-port", str(PAGE_PORT)],
        "worker": ["org.apache.spark.deploy.worker.Worker", "--host", apart.inside, "--cores", "2", "--memory", "1g",
                   "--work-dir", str(work), address],
    }  # fmt: skip
    environment = environment | {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": apart.inside, "PYSPARK_PYTHON": sys.executable,
    } | ({} if (java := find_java_home(os.environ)) is None else {"JAVA_HOME": str(java)})  # fmt: skip
    logs = {name: work.parent / f"{name}.log" for name in commands}
    said = {"master": "I have been elected leader", "worker": "Successfully registered with master"}
    with (
        serving([*outer, hidden, spark, *commands["master"]], log=logs["master"], environment=environment,
                ready=lambda: said["master"] in logs["master"].read_text(), seconds=START_S),
        serving([*outer, hidden, spark, *commands["worker"]], log=logs["worker"], environment=environment,
                ready=lambda: said["worker"] in logs["worker"].read_text(), seconds=START_S),
    ):  # fmt: skip
        yield address


def test_executors_on_another_machine_read_by_the_store_alone(tmp_path: Path) -> None:
    """R-136, SP5: they reach driver and store, not the log, and see nothing of the brokers' directories."""
    brokers = tmp_path / "brokers"
    brokers.mkdir()
    with (
        namespace() as apart,
        versity(tmp_path, apart.first) as bucket,
        in_etcd(apart.second, Path(_made(tmp_path / "etcd"))) as log_url,
    ):
        name, log = bucket.new_bucket(), log_url("cluster")
        settings = [*settings_of(bucket, name), f"log.url={log}", "cluster.domains=2"]
        with broker_process(brokers / "one", *settings) as broker:
            create(broker.bootstrap, "orders", partitions=4)
            produce(broker.bootstrap, "orders", numbered(0, 400, 4))
            written = consumed(broker.bootstrap, "orders", 4)
            apart.cut(apart.second)  # where the log is
            environment = environ(bucket)
            with spark_inside(apart, brokers, tmp_path / "work", environment) as master:
                ran = subprocess.run(
                    [sys.executable, "-m", "tests.peers.cluster_job", log, f"s3://{name}", "orders",
                     _made(tmp_path / "events"), master, apart.first],
                    cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=LIMIT_S,
                    check=False,
                )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3_000:]
    rows = [ast.literal_eval(line) for line in ran.stdout.splitlines() if line.startswith("(")]
    assert len(rows) == 400
    assert sorted(rows) == sorted((row.partition, row.offset, row.key, row.value) for row in written)
    executors = list((tmp_path / "work").glob("app-*/*/stderr"))
    assert executors, "somebody else read the records"
    assert "Finished task" in "".join(one.read_text() for one in executors)


def _made(directory: Path) -> str:
    directory.mkdir()
    return str(directory)
