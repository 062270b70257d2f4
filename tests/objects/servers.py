"""Stores for tests: moto from PyPI, versitygw and Azurite from the cache of peers, and our double of GCS."""

import dataclasses
import functools
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.objects.opening import StoreEffects, StoreOptions
from dray.objects.retry import RetryPolicy
from dray.offload import InlineOffload
from tools.peers import azurite, versitygw

if TYPE_CHECKING:
    from tests.objects.gcs_double import GcsDouble

PATIENT = RetryPolicy(attempt_seconds=30.0, budget=1_000)
"""moto answers slowly on a busy machine."""


@dataclasses.dataclass
class CloudServer:
    """A server, and as many empty buckets as asked for."""

    scheme = "s3"
    options: StoreOptions
    _numbers: "itertools.count[int]" = dataclasses.field(default_factory=itertools.count)

    def new_bucket(self) -> str:
        name = f"bucket-{next(self._numbers)}"
        self._make(name)
        return name

    def url(self, prefix: str = "dray") -> str:
        """A prefix of a new bucket."""
        return f"{self.scheme}://{self.new_bucket()}/{prefix}"

    def wrong_options(self) -> StoreOptions:
        """What a stranger would come with."""
        return dataclasses.replace(self.options, secret_key="bm90LXRoZS1rZXk=")

    def _make(self, bucket: str) -> None:
        raise NotImplementedError


class S3Server(CloudServer):
    def _make(self, bucket: str) -> None:
        self.client.create_bucket(Bucket=bucket)

    @functools.cached_property
    def client(self) -> Any:
        import boto3  # slow to import, and racing processes need it not

        return boto3.client(
            "s3",
            endpoint_url=self.options.endpoint,
            region_name=self.options.region,
            aws_access_key_id=self.options.access_key,
            aws_secret_access_key=self.options.secret_key,
        )


class AzureServer(CloudServer):
    scheme = "az"
    server: azurite.Azurite

    def _make(self, bucket: str) -> None:
        self.server.make_container(bucket)


class GcsServer(CloudServer):
    scheme = "gs"
    double: "GcsDouble"
    directory: Path

    def _make(self, bucket: str) -> None:
        self.double.buckets[bucket] = {}

    def wrong_options(self) -> StoreOptions:
        from cryptography.hazmat.primitives.asymmetric import rsa

        other = self.double.key_file(self.directory / "other.json", rsa.generate_private_key(65537, 2048))
        return dataclasses.replace(self.options, credentials_file=other)


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
def versity(directory: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    with versitygw.running(directory / "buckets", host) as server:
        yield S3Server(_options(server.endpoint, server.access_key, server.secret_key))


@contextmanager
def azure(directory: Path) -> Iterator[AzureServer]:
    with azurite.running(directory / "containers") as server:
        found = AzureServer(_options(server.endpoint, azurite.ACCOUNT, azurite.KEY))
        found.server = server
        yield found


@contextmanager
def gcs(directory: Path) -> Iterator[GcsServer]:
    from tests.objects.gcs_double import gcs_double  # racing processes need it not

    with gcs_double() as double:
        key = double.key_file(directory / "key.json")
        found = GcsServer(StoreOptions(endpoint=double.endpoint, credentials_file=key, retry=PATIENT))
        found.double, found.directory = double, directory
        yield found


def _options(endpoint: str, access_key: str, secret_key: str) -> StoreOptions:
    return StoreOptions(
        endpoint=endpoint, region="us-east-1", access_key=access_key, secret_key=secret_key, retry=PATIENT
    )
