"""Apache Iceberg's own REST catalog server: got by Maven once, run on a free port."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.peers.kafka import JDK
from tools.peers.process import cached, free_ports, run, serving, tool

VERSION: Final = "1.11.0"
_JETTY: Final = "12.1.5"
_HADOOP: Final = "3.4.2"
_START_SECONDS: Final = 120.0
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_JARS: Final = (
    ("org.apache.iceberg", "iceberg-open-api", VERSION, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", VERSION, ""),
    ("org.apache.iceberg", "iceberg-core", VERSION, "tests"),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY, ""),
    ("org.eclipse.jetty.compression", "jetty-compression-server", _JETTY, ""),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", _JETTY, ""),
    ("org.apache.hadoop", "hadoop-client-api", _HADOOP, ""),
    ("org.apache.hadoop", "hadoop-client-runtime", _HADOOP, ""),
    ("org.xerial", "sqlite-jdbc", "3.53.4.0", ""),
    ("org.slf4j", "slf4j-simple", "2.0.17", ""),
)


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """Its address, until the end of the block; what it knows is kept in the directory."""
    jars = cached(f"iceberg-rest-{VERSION}", _fetch) / "libs"
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    environment = {
        "CATALOG_URI": f"jdbc:sqlite:{directory}/rest.db", "CATALOG_WAREHOUSE": f"file://{directory}/warehouse",
        "CATALOG_REST_PORT": str(port), "CATALOG_JDBC_SCHEMA__VERSION": "V1",
    }  # fmt: skip
    command = [tool("java", JDK), "-Xmx256m", "-cp", f"{jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"]
    with serving(
        command, log=directory / "rest.log", ready=lambda: _answers(address), environment=environment,
        seconds=_START_SECONDS,
    ):  # fmt: skip
        yield address


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/v1/config", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _fetch(directory: Path) -> None:
    maven = tool("mvn", f"maven {JDK}")
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        + (f"<classifier>{classifier}</classifier>" if classifier else "")
        + "</dependency>\n"
        for group, name, version, classifier in _JARS
    )
    (directory / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>dray.peers</groupId><artifactId>iceberg-rest</artifactId><version>1</version>"
        f"<packaging>pom</packaging>\n<dependencies>\n{wanted}</dependencies></project>\n"
    )
    run([maven, "-q", "-B", _COPY, "-DoutputDirectory=libs", "-DincludeScope=runtime"], directory=directory)
