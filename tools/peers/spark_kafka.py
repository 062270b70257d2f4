"""The jars of Spark's own Kafka source, for a PySpark of the 4.1 line.

    python -m tools.peers.spark_kafka     fetch them and print the class path

Maven fetches them on the first call; later calls use the cache. They are
fetched one by one, without what their poms ask for: Spark has the rest, and
the registry has no stable token provider of this line.
"""

from pathlib import Path
from typing import Final

from tools.peers.kafka import JDK
from tools.peers.process import cached, run, tool

VERSION: Final = "4.1.3"
ARTIFACTS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def jars() -> list[Path]:
    """The jars, in a stable order, for `spark.jars`."""
    return sorted((cached(f"spark-kafka-{VERSION}", _fetch) / "libs").glob("*.jar"))


def _fetch(directory: Path) -> None:
    maven = tool("mvn", f"maven {JDK}")
    for artifact in ARTIFACTS:
        run([maven, "-q", "-B", _COPY, f"-Dartifact={artifact}", "-DoutputDirectory=libs"], directory=directory)


if __name__ == "__main__":
    print(",".join(str(jar) for jar in jars()))
