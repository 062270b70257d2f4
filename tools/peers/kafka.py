"""Apache Kafka, one broker in combined mode on free ports of 127.0.0.1.

    python -m tools.peers.kafka [key=value ...]     run it until interrupted

Maven fetches the jars on the first call; later calls use the cache.
"""

import contextlib
import shlex
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.peers.process import cached, free_ports, run, serving, tool

VERSION: Final = "4.3.1"
JDK: Final = "default-jdk-headless"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_START_SECONDS: Final = 120.0
_CLUSTER: Final = "ZHJheS1wZWVyLWthZmthIQ"
"""A Kafka id is 16 bytes in base64; brokers that never meet may have the same."""
_SHORT_LIVED: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_TOOLS: Final = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}

_POM: Final = f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dray.peers</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version>
    </dependency>
  </dependencies>
</project>
"""

# Standard output belongs to the answers of the tools; what is logged goes to standard error.
_LOG4J: Final = """
appenders=console
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRefs=console
rootLogger.appenderRef.console.ref=console
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBroker:
    """A running broker."""

    address: str
    pid: int
    directory: Path
    """`server.log` lies here, and the data while the broker runs."""

    def __str__(self) -> str:
        return self.address


def jars() -> Path:
    """The directory of Kafka's jars (92 of them, 55 MB), and of the two log settings beside them."""
    return cached(f"kafka-{VERSION}", _fetch) / "libs"


def java_command(*options: str, level: str = "WARN") -> list[str]:
    """`java` with Kafka's class path; what follows is a main class and its arguments."""
    libs = jars()
    settings = f"-Dlog4j2.configurationFile={libs.parent / f'log4j2-{level}.properties'}"
    return [tool("java", JDK), *options, settings, "-cp", f"{libs}/*"]


def write_tools(directory: Path) -> None:
    """Kafka's command-line tools under the names that its download gives them."""
    for name, main in _TOOLS.items():
        script = directory / name
        command = shlex.join([*java_command("-Xmx256m", *_SHORT_LIVED), main])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)


@contextmanager
def kafka_broker(extra_properties: Mapping[str, str] | None = None, *, heap: str = "1g") -> Iterator[KafkaBroker]:
    """Run a broker until the end of the block.

    Its directory goes at a clean end; after a failure the log stays and only the data goes.
    """
    directory = Path(tempfile.mkdtemp(prefix="dray-kafka-"))
    try:
        with _serving(directory, extra_properties or {}, heap) as broker:
            yield broker
    except BaseException:
        shutil.rmtree(directory / "data", ignore_errors=True)
        raise
    shutil.rmtree(directory)


@contextmanager
def _serving(directory: Path, extra: Mapping[str, str], heap: str) -> Iterator[KafkaBroker]:
    port, controller = free_ports(2)
    settings = directory / "server.properties"
    properties = {**_properties(directory, port, controller), **extra}
    settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    storage = [*java_command(*_SHORT_LIVED), "kafka.tools.StorageTool"]
    run([*storage, "format", "-t", _CLUSTER, "-c", settings, "--standalone"])
    command = [*java_command(f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", level="INFO"), "kafka.Kafka", str(settings)]
    log = directory / "server.log"
    with serving(
        command, log=log, ready=lambda: _answers(port), directory=directory, seconds=_START_SECONDS
    ) as process:
        yield KafkaBroker(address=f"127.0.0.1:{port}", pid=process.pid, directory=directory)


def _properties(directory: Path, port: int, controller: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "data"),
        "num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A deleted topic gives its disk back at once: benchmarks make and delete gigabytes.
        "log.segment.delete.delay.ms": "1000",
    }


def _answers(port: int) -> bool:
    """Whether the broker names itself in Metadata v1: its port is open well before that."""
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        head = connection.recv(12, socket.MSG_WAITALL)
    return len(head) == 12 and struct.unpack(">i", head[8:])[0] > 0


def _fetch(directory: Path) -> None:
    maven = tool("mvn", f"maven {JDK}")
    (directory / "pom.xml").write_text(_POM)
    run([maven, "-q", "-B", _COPY, "-DoutputDirectory=libs", "-DincludeScope=runtime"], directory=directory)
    for level in ("INFO", "WARN"):
        (directory / f"log4j2-{level}.properties").write_text(_LOG4J.format(level=level))


if __name__ == "__main__":
    with kafka_broker(dict(argument.split("=", 1) for argument in sys.argv[1:])) as running:
        print(running.address, f"pid={running.pid}", running.directory, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
