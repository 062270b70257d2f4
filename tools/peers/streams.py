"""The jars of Kafka Streams, beside those of Kafka: the library itself and the store that it keeps its state in."""

from pathlib import Path
from typing import Final

from tools.peers.kafka import JDK, VERSION
from tools.peers.process import cached, run, tool

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM: Final = f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dray.peers</groupId>
  <artifactId>streams</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def streams_jars() -> Path:
    """The directory of the jars, fetched by Maven on the first call."""
    return cached(f"kafka-streams-{VERSION}", _fetch) / "libs"


def _fetch(directory: Path) -> None:
    maven = tool("mvn", f"maven {JDK}")
    (directory / "pom.xml").write_text(_POM)
    wanted = "-DincludeArtifactIds=kafka-streams,rocksdbjni"
    run([maven, "-q", "-B", _COPY, "-DoutputDirectory=libs", "-DincludeScope=runtime", wanted], directory=directory)
