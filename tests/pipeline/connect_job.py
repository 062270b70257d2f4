"""A Spark Connect server and its sessions, one after another: `python -m tests.pipeline.connect_job DIRECTORY TOPIC N`.

Prints its port, and what each session counted; then the server lives until standard input ends.
"""

import sys

from pyspark.sql.connect.session import SparkSession

from dray.pipeline.session import build_session
from tests.pipeline.job import QUICK_START

CONNECT = QUICK_START | {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}


def main(directory: str, topic: str, sessions: str) -> None:
    server = build_session("connect", master="local[1]", config=CONNECT)
    service = getattr(server.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    print(port, flush=True)
    for _ in range(int(sessions)):
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        reader = session.read.format("dray").option("subscribe", topic).option("pinSeconds", "20")
        print(reader.load(directory).count(), flush=True)
        session.stop()
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
