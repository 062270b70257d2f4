"""A Spark session that is ready for Dray: Java found, Python named, our worker daemon.

    from dray.pipeline.session import build_session

    spark = build_session("reports")
    spark.read.format("dray").option("subscribe", "orders").load("dray-data").show()

`spark.read.format("dray")` works in any session of a Python that has this
package; this one starts its tasks faster and retries a failed one.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from dray.pipeline.java import find_java_home

DEFAULTS: Final = {
    "spark.python.daemon.module": "dray.pipeline.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def build_session(
    name: str = "dray", *, master: str = "local[*,4]", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session, or get the one that runs.

    `local[*,4]` tries a failed task up to four times; plain `local[*]` does not.

    Raises:
        NoJava, OldJava: Spark cannot run here, and what to do about it.
    """
    home = find_java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Workers must be the Python that has this package, not the first one of PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(master)
    settings = DEFAULTS | (LOCAL if master.startswith("local") else {}) | dict(config or {})
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
