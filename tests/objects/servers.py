"""S3 servers for tests: moto from PyPI, versitygw from the cache of peers."""

import dataclasses
import functools
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.objects.opening import StoreEffects, StoreOptions
from dray.objects.retry import RetryPolicy
from dray.offload import InlineOffload
from tools.peers import versitygw

PATIENT = RetryPolicy(attempt_seconds=30.0, budget=1_000)
"""moto answers slowly on a busy machine."""


@dataclasses.dataclass
class S3Server:
    """A server, and as many empty buckets as asked for."""

    options: StoreOptions
    _numbers: "itertools.count[int]" = dataclasses.field(default_factory=itertools.count)

    def new_bucket(self) -> str:
        name = f"bucket-{next(self._numbers)}"
        self._client.create_bucket(Bucket=name)
        return name

    @functools.cached_property
    def _client(self) -> Any:
        import boto3  # slow to import, and racing processes need it not

        return boto3.client(
            "s3",
            endpoint_url=self.options.endpoint,
            region_name=self.options.region,
            aws_access_key_id=self.options.access_key,
            aws_secret_access_key=self.options.secret_key,
        )


def effects() -> StoreEffects:
    return StoreEffects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())


@contextmanager
def moto(directory: Path) -> Iterator[S3Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = directory / "moto.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=output,
        )
        try:
            versitygw.wait_for_port(process, port, log)
            yield S3Server(_options(f"http://127.0.0.1:{port}", "moto", "moto"))
        finally:
            process.terminate()
            process.wait(10)


@contextmanager
def versity(directory: Path) -> Iterator[S3Server]:
    with versitygw.running(directory / "buckets") as server:
        yield S3Server(_options(server.endpoint, server.access_key, server.secret_key))


def _options(endpoint: str, access_key: str, secret_key: str) -> StoreOptions:
    return StoreOptions(
        endpoint=endpoint, region="us-east-1", access_key=access_key, secret_key=secret_key, retry=PATIENT
    )
