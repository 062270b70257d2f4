"""A Spark session that is ready for Dray: Java found, Python named, our worker daemon.

    from dray.pipeline.session import build_session

    spark = build_session("reports")
    spark.read.format("dray").option("subscribe", "orders").load("dray-data").show()

`spark.read.format("dray")` works in any session whose Python (PYSPARK_PYTHON)
has this package; this one starts its tasks faster and retries a failed one.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from dray.errors import Invalid
from dray.pipeline.java import find_java_home
from dray.pipeline.parallelism import VARIABLE, cores_of

DEFAULTS: Final = {
    "spark.python.daemon.module": "dray.pipeline.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

JVM_END_S: Final = 20


class WrongPython(Invalid):
    """A session is running whose Python does not have this package."""


def build_session(
    name: str = "dray", *, master: str = "local[*,4]", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session, or get the one that runs.

    `local[*,4]` tries a failed task up to four times; plain `local[*]` does not.

    Raises:
        NoJava, OldJava, WrongPython: Spark cannot run here, and what to do about it.
    """
    home = find_java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Workers must be the Python that has this package, not the first one of PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = DEFAULTS | (LOCAL if master.startswith("local") else {}) | dict(config or {})
    tasks = cores_of(master, settings)
    if tasks is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = str(tasks)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _check_python(session)
    return session


def end_session(session: SparkSession) -> None:
    """Stop a session and its JVM, which would else stay for as long as this process; another may be built then."""
    session.stop()
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()  # the JVM ends with it
        try:
            process.wait(JVM_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _check_python(session: SparkSession) -> None:
    """A JVM that was running already keeps the Python of its environment, and then finds no source named dray."""
    jvm = session.sparkContext._jvm
    assert jvm is not None, "a session of this kind has a JVM"
    told = (jvm.System.getenv(name) for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"))
    chosen = next((name for name in told if name), "python3")
    if chosen == sys.executable:
        return
    look = [chosen, "-c", "import dray, pyspark_dray"]
    try:
        found = subprocess.run(look, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        found = False
    if not found:
        raise WrongPython(
            "Spark was started before, for a Python that does not have dray, and keeps it: restart this process, and "
            "call build_session first or set PYSPARK_PYTHON before Spark starts",
            python=chosen, wanted=sys.executable,
        )  # fmt: skip
