"""The jar with which Spark of the 4.1 line reads Iceberg tables; Maven fetches it once.

python -m tools.peers.iceberg_spark     fetch it and print its path
"""

from pathlib import Path
from typing import Final

from tools.peers.kafka import JDK
from tools.peers.process import cached, run, tool

VERSION: Final = "1.12.0"
ARTIFACT: Final = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{VERSION}"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def jar() -> Path:
    """For `spark.jars`."""
    (found,) = (cached(f"iceberg-spark-{VERSION}", _fetch) / "libs").glob("*.jar")
    return found


def _fetch(directory: Path) -> None:
    maven = tool("mvn", f"maven {JDK}")
    run([maven, "-q", "-B", _COPY, f"-Dartifact={ARTIFACT}", "-DoutputDirectory=libs"], directory=directory)


if __name__ == "__main__":
    print(jar())
