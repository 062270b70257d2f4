"""Jobs on a cluster of one master and two workers, made of the pyspark wheel alone: read, compacted, and torn down."""

import ast
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark
import pytest

from dray.pipeline.java import find_java_home
from tests.pipeline.job import CLUSTER
from tests.pipeline.parts import Row, broker_process, consumed, create, numbered, produce, wait_until
from tests.pipeline.test_connect import words_of
from tests.pipeline.test_drayd_compactor import DRAYD, table_of

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


@dataclass
class Cluster:
    """A master, and workers of one core each."""

    master: str
    workers: list[psutil.Process]
    conf: Path
    """What `SPARK_CONF_DIR` names: the settings of whoever uses the cluster."""

    def executors(self) -> list[psutil.Process]:
        found = [child for worker in self.workers if worker.is_running() for child in worker.children()]
        return [one for one in found if "CoarseGrainedExecutorBackend" in " ".join(words_of(one))]

    def lose_executors(self) -> None:
        _kill(self.executors())

    def lose_machine(self) -> None:
        """A worker and everything below it, at once."""
        _kill([self.workers[0], *self.workers[0].children(recursive=True)])


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def part(log: Path, name: str, *arguments: str, environ: dict[str, str]):
    """One process of the cluster; it writes what it does into `log`."""
    home = find_java_home(os.environ)
    java = {} if home is None else {"JAVA_HOME": str(home)}
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | ENVIRON | environ | java, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def cluster_in(root: Path, environ: dict[str, str]):
    port = free_port()
    master, log, workers = f"spark://127.0.0.1:{port}", root / "master.log", []
    conf = root / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in CLUSTER.items()))
    with ExitStack() as stack:
        web = ("--webui-port", "0")
        stack.enter_context(part(log, "master.Master", "--port", str(port), *web, environ=environ))
        for n in range(2):
            place = ("--work-dir", str(root / f"worker-{n}"))
            size = ("--cores", "1", "--memory", "600m")
            started = part(root / f"{n}.log", "worker.Worker", *size, *web, *place, master, environ=environ)
            workers.append(psutil.Process(stack.enter_context(started).pid))
        wait_until(lambda: log.read_text(errors="replace").count("Registering worker") == 2, 120)
        yield Cluster(master, workers, conf)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cluster_in(tmp_path_factory.mktemp("cluster"), {}) as made:
        yield made


def test_a_cluster_gives_the_same_rows(cluster, tmp_path):
    """R-143, R-165."""
    with broker_process(tmp_path / "data") as started:
        create(started.bootstrap, "wide", 3)
        produce(started.bootstrap, "wide", [*numbered(0, 3_000, 3), *ODD], batch_size=4_000, compression_type="zstd")
        command = [sys.executable, "-m", "tests.pipeline.job", "read", cluster.master, str(tmp_path / "data"), "wide"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-3_000:]
        expected = consumed(started.bootstrap, "wide", 3)
    rows = [ast.literal_eval(line) for line in ran.stdout.splitlines()]
    found = [Row(*columns[:7], None if columns[7] is None else tuple(columns[7])) for columns, _ in rows]
    assert sorted(found) == expected
    assert any(row.headers for row in found)
    assert len({reader for _, reader in rows}) == 2  # both workers read


@pytest.mark.timeout(600)
def test_a_compactor_makes_tables_with_the_executors_of_a_cluster(cluster, tmp_path):
    """R-143: it starts a driver and no more; what is written is the same."""
    with broker_process(tmp_path / "data", "compaction.enabled=false") as started:
        create(started.bootstrap, "orders", 3)
        produce(started.bootstrap, "orders", [*numbered(0, 300, 3), *ODD])
        command = [DRAYD, "compactor", "--data", str(started.directory), "--once", "--format", "json"]
        command += ["--set", "compaction.max_age=0s", "--set", f"compaction.master={cluster.master}"]
        environ = os.environ | {"SPARK_CONF_DIR": str(cluster.conf)}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=environ)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (orders,) = json.loads(ran.stdout)["topics"]
        assert (orders["partitions"], orders["records"], orders["state"]) == (3, 303, "done")
        assert table_of(started.directory, "orders") == consumed(started.bootstrap, "orders", 3)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["reading", "written"])
def test_a_lost_executor_costs_no_record_and_doubles_none(store, tmp_path, moment):
    """R-153, CP1, T13: all executors die in the middle of a range; a whole machine dies when its file has landed.

    The cluster starts others in their place, or has one machine less; tasks are run again under names of their own.
    """
    asked, lost = threading.Semaphore(0), threading.Event()

    def hang(_name: str) -> None:
        asked.release()
        lost.wait(300)

    def lose(wanted: int, how: Callable[[], None]) -> None:
        try:
            for _ in range(wanted):
                assert asked.acquire(timeout=300)
            how()
        finally:
            lost.set()

    data = tmp_path / "data"
    with cluster_in(tmp_path / "cluster", store.environ) as made, broker_process(data) as started:
        create(started.bootstrap, "orders", 2)
        produce(started.bootstrap, "orders", numbered(0, 200, 2))
        address = store.serve(data / "objects")
        if moment == "reading":
            store.before, wanted, how = hang, 1, made.lose_executors
        else:
            store.after_put, wanted, how = hang, 2, made.lose_machine  # two executors of one core have a task each
        killer = threading.Thread(target=lose, args=(wanted, how))
        killer.start()
        command = [sys.executable, "-m", "tests.pipeline.cluster_cycle", made.master, str(data), "orders", address]
        environ = os.environ | store.environ | {"SPARK_CONF_DIR": str(made.conf)}
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environ)
        finally:
            killer.join()
        assert ran.returncode == 0, ran.stderr[-3_000:]
        told = json.loads(ran.stdout)
        assert (told["records"], told["failures"]) == (200, [])
        assert max(told["attempts"]) >= 1, "nothing was lost"
        assert table_of(data, "orders") == consumed(started.bootstrap, "orders", 2)
