"""`drayd dev --brokers N`: a log server and N brokers on one directory, as processes of their own.

DIR                 the log server: its log, and the records unless --objects says otherwise
DIR/broker-1 ...    what each broker has for itself: who it is, and copies of checkpoints
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import typer

from dray.cli.serving import Running
from dray.clock import SystemClock
from dray.config import Config, Level
from dray.errors import DrayError, Invalid
from dray.log.settings import LogSettings
from dray.node.addresses import HostPort, parse_host_port
from dray.node.directory import DataDirectory
from dray.node.fleet import Fleet, Member
from dray.node.settings import BrokerSettings
from dray.objects.settings import ObjectsSettings
from dray.servers.grpc.settings import GrpcSettings
from dray.servers.http.settings import HttpSettings
from dray.servers.kafka.settings import KafkaSettings

MOST_BROKERS: Final = 16
CLUSTER_DEFAULTS: Final = {"session.ttl": "6s", "session.keepalive": "2s"}
"""Where others can take over it is worth noticing sooner that a broker is gone."""
DOMAINS: Final = "4"
"""The data domains of a new cluster of several brokers, so that each leads some."""


def inherited(config: Path | None, sets: Sequence[str] | None) -> list[str]:
    """What every process of the cluster is given as this one was."""
    file = [] if config is None else ["--config", str(config)]
    return [*file, *(text for one in sets or () for text in ("--set", one))]


@asynccontextmanager
async def as_cluster(config: Config, brokers: int, zones: int, given: Sequence[str]) -> AsyncIterator[Running]:
    """The processes, for as long as the block runs."""
    _check(config)
    directory = DataDirectory(config.get(BrokerSettings).data.absolute())
    own = {entry.key for entry in config.entries() if entry.origin.level is Level.DEFAULT}
    members = [
        _broker(config, directory, number, [*given, *_zone(number, zones)], own) for number in range(1, brokers + 1)
    ]
    fleet = Fleet(_meta(config, directory, given, own, brokers), members, SystemClock())
    cores = len(os.sched_getaffinity(0))
    typer.echo(
        f"{brokers} brokers share the {cores} cores of this machine: one that fails is stood in for, and each can be "
        "restarted by itself; there is hardly more throughput than with one",
        err=True,
    )
    failed: asyncio.Future[DrayError] = asyncio.get_running_loop().create_future()
    async with fleet.running():
        words = ["kafka", "http"]
        words += ["grpc"] if config.get(GrpcSettings).listen else []
        words += ["outside"] if config.get(KafkaSettings).outside_listen else []
        told = (f"{word}=" + ",".join(member.told[word] for member in members) for word in words)
        yield Running(ready=" ".join(told), failed=failed)


def _check(config: Config) -> None:
    if config.get(LogSettings).url is not None:
        raise Invalid("--brokers begins or opens the log of its directory: leave out --log (log.url)")
    kafka = config.get(KafkaSettings)
    if kafka.advertise is not None and not parse_host_port(kafka.listen, "kafka.listen").port:
        raise Invalid("what is advertised is a fixed address: give --kafka a port, too")
    if config.get(BrokerSettings).id >= 0:
        raise Invalid("--brokers gives the brokers their ids: leave out broker.id")
    if config.get(ObjectsSettings).url == "memory:":
        raise Invalid("several processes share no memory: give --objects a directory or a bucket")


def _meta(config: Config, directory: DataDirectory, given: Sequence[str], own: set[str], brokers: int) -> Member:
    domains = ["--set", f"cluster.domains={DOMAINS}"] if "cluster.domains" in own else []
    http = _nth(config.get(HttpSettings).listen, "http.listen", brokers + 1)
    arguments = [
        "meta", *given, *domains, "--data", str(directory.root), *_store(config, directory), "--http", str(http),
    ]  # fmt: skip
    return Member(name="meta", arguments=arguments, free={} if http.port else {"http": "--http"})


def _broker(config: Config, directory: DataDirectory, number: int, given: Sequence[str], own: set[str]) -> Member:
    kafka, http = config.get(KafkaSettings), config.get(HttpSettings)
    defaults = [text for key, value in CLUSTER_DEFAULTS.items() if key in own for text in ("--set", f"{key}={value}")]
    addresses = {
        "--kafka": _nth(kafka.listen, "kafka.listen", number),
        "--http": _nth(http.listen, "http.listen", number),
    }
    grpc = config.get(GrpcSettings)
    if grpc.listen:  # downwards: the next ports up are those of HTTP
        addresses["--grpc"] = _nth(grpc.listen, "grpc.listen", number, step=-1)
    words = {"--kafka": "kafka", "--http": "http", "--grpc": "grpc"}
    free = {words[flag]: flag for flag, address in addresses.items() if not address.port}
    if kafka.advertise is not None:
        addresses["--advertise"] = _nth(kafka.advertise, "kafka.advertise", number)
    outside = {
        f"kafka.{key}": _nth(text, f"kafka.{key}", number)
        for key, text in (("outside_listen", kafka.outside_listen), ("outside_advertise", kafka.outside_advertise))
        if text is not None
    }
    told = _nth(grpc.advertise, "grpc.advertise", number, step=-1) if grpc.listen and grpc.advertise else None
    return Member(
        name=f"broker-{number}",
        arguments=[
            "dev", *given, *defaults, "--set", f"broker.id={number}",
            "--data", str(directory.root / f"broker-{number}"), "--log", str(directory.served),
            *_store(config, directory),
            *(text for key, address in outside.items() for text in ("--set", f"{key}={address}")),
            *(() if told is None else ("--set", f"grpc.advertise={told}")),
            *(() if grpc.listen else ("--grpc", "")),
            *(text for flag, address in addresses.items() for text in (flag, str(address))),
        ],
        free=free,
    )  # fmt: skip


def _zone(number: int, zones: int) -> list[str]:
    """Brokers take the zones z1, z2 ... in turn, if there are to be any."""
    return ["--set", f"broker.zone=z{(number - 1) % zones + 1}"] if zones else []


def _store(config: Config, directory: DataDirectory) -> list[str]:
    return ["--objects", config.get(ObjectsSettings).url or str(directory.objects)]


def _nth(text: str, key: str, number: int, step: int = 1) -> HostPort:
    """The address of the broker with a number: each takes the next port; of port 0 each takes a free one."""
    first = parse_host_port(text, key)
    return HostPort(host=first.host, port=first.port + (number - 1) * step if first.port else 0)
