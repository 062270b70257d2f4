"""A session of somebody else in a virtual environment that is not activated: what Spark says, and what we do."""

import os
import subprocess
import sys
import venv

import pytest

from dray.pipeline.java import find_java_home

pytestmark = pytest.mark.slow  # a session alone takes ten seconds

# As somebody would type it.
SCRIPT = """
from pyspark.sql import SparkSession

quick = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=quick).getOrCreate()
for attempt in (
    lambda: spark.read.format("dray").option("subscribe", "orders").load("dray-data").columns,
    lambda: __import__("dray.pipeline.session").pipeline.session.build_session("mine").range(1).count(),
):
    try:
        print("fine", attempt())
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_without_its_python_named_spark_finds_no_source_and_build_session_says_why(tmp_path):
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)  # the python3 of PATH: it has no dray
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environ["PATH"] = f"{tmp_path / 'other' / 'bin'}{os.pathsep}{environ['PATH']}"
    home = find_java_home(os.environ)
    environ |= {} if home is None else {"JAVA_HOME": str(home)}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2_000:]
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: dray." in ran.stdout
    assert "WrongPython Spark was started before, for a Python that does not have dray, and keeps it" in ran.stdout
    assert f"python=python3 wanted={sys.executable}" in ran.stdout
