"""The same job on a cluster of one master and two workers, made of the pyspark wheel alone."""

import ast
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from dray.pipeline.java import find_java_home
from tests.pipeline.parts import Row, broker_process, consumed, create, numbered, produce, wait_until

pytestmark = pytest.mark.slow

HOME = Path(pyspark.__file__).parent
ENVIRON = {
    "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
    "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
}  # fmt: skip

ODD = [(None, b"", [("a", b"1"), ("a", None)], 0), (b"", None, [("", b"")], 1), (b"k", b"v", [("one", b"two")], 2)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def part(log: Path, name: str, *arguments: str):
    """One process of the cluster; it writes what it does into `log`."""
    home = find_java_home(os.environ)
    java = {} if home is None else {"JAVA_HOME": str(home)}
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | ENVIRON | java, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path):
    port = free_port()
    master, log = f"spark://127.0.0.1:{port}", tmp_path / "master.log"
    with ExitStack() as stack:
        web = ("--webui-port", "0")
        stack.enter_context(part(log, "master.Master", "--port", str(port), *web))
        for n in range(2):
            place = ("--work-dir", str(tmp_path / f"worker-{n}"))
            size = ("--cores", "1", "--memory", "600m")
            stack.enter_context(part(tmp_path / f"{n}.log", "worker.Worker", *size, *web, *place, master))
        wait_until(lambda: log.read_text(errors="replace").count("Registering worker") == 2, 120)
        yield master


def test_a_cluster_gives_the_same_rows(cluster, tmp_path):
    """R-143, R-165."""
    with broker_process(tmp_path / "data") as started:
        create(started.bootstrap, "wide", 3)
        produce(started.bootstrap, "wide", [*numbered(0, 3_000, 3), *ODD], batch_size=4_000, compression_type="zstd")
        command = [sys.executable, "-m", "tests.pipeline.job", "read", cluster, str(tmp_path / "data"), "wide"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-3_000:]
        expected = consumed(started.bootstrap, "wide", 3)
    rows = [ast.literal_eval(line) for line in ran.stdout.splitlines()]
    found = [Row(*columns[:7], None if columns[7] is None else tuple(columns[7])) for columns, _ in rows]
    assert sorted(found) == expected
    assert any(row.headers for row in found)
    assert len({reader for _, reader in rows}) == 2  # both workers read
