"""How long clients wait when a broker goes: a log server and three brokers, the settings of `drayd dev --brokers`.

A producer on its defaults sends to twelve partitions, a hundred records a
second. One broker is killed, or told to stop, and stays away. What counts is
the longest time without an acknowledgement on any partition, and that nothing
fails: the application hears of it as latency alone.
"""

import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so

from bench._brokers import BadRun
from bench.harness import Absolute, Case
from dray.node.fleet import Member

BROKERS: Final = 3
PARTITIONS: Final = 12
RATE: Final = 100
BEFORE_S: Final = 4.0
AFTER_S: Final = 20.0
_SETTINGS: Final = ("session.ttl=6s", "session.keepalive=2s", "cluster.domains=4")
_ANY: Final = "127.0.0.1:0"


def cases() -> list[Case]:
    return [
        Absolute(
            "longest time without an ack, kill -9 of a leader", run=lambda: _gap_s(subprocess.Popen.kill),
            mark=8.0, unit="s", at_most=True, note=f"{BROKERS} brokers, the worst of {PARTITIONS} partitions",
        ),
        Absolute(
            "longest time without an ack, SIGTERM of a leader", run=lambda: _gap_s(subprocess.Popen.terminate),
            mark=1.0, unit="s", at_most=True, note=f"{BROKERS} brokers, the worst of {PARTITIONS} partitions",
        ),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    process: "subprocess.Popen[str]"
    told: dict[str, str]


@contextmanager
def _cluster() -> Iterator[list[_Process]]:
    """The brokers, each a process that nobody starts again."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        sets = [text for one in _SETTINGS for text in ("--set", one)]
        meta = _start(stack, "meta", *sets, "--data", str(home / "meta"))
        joined = ("--log", meta.told["log"], "--kafka", _ANY, "--http", _ANY, "--grpc", "")
        yield [
            _start(stack, "dev", *sets, *joined, "--data", str(home / f"{n}"), "--set", f"broker.id={n}")
            for n in range(1, BROKERS + 1)
        ]


def _start(stack: ExitStack, *arguments: str) -> _Process:
    command = Member(name=arguments[0], arguments=arguments).command()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    word, *facts = process.stdout.readline().split() or [""]
    if word != "ready":
        raise BadRun(f"{arguments[0]} did not start")
    return _Process(process=process, told=dict(fact.split("=", 1) for fact in facts))


def _gap_s(end: Callable[["subprocess.Popen[str]"], None]) -> float:
    with _cluster() as brokers:
        bootstrap = ",".join(one.told["kafka"] for one in brokers)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("load", PARTITIONS, 1)])["load"].result(30)
        leaders = {one.leader for one in admin.list_topics("load", 30).topics["load"].partitions.values()}
        victim = brokers[min(leaders) - 1]
        acks: dict[int, list[float]] = defaultdict(list)
        failed: list[str] = []

        def acked(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(str(error))
            else:
                acks[message.partition() or 0].append(time.monotonic())

        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        begun = time.monotonic()
        gone: float | None = None
        number = 0
        while (now := time.monotonic()) < begun + BEFORE_S + AFTER_S:
            if gone is None and now >= begun + BEFORE_S:
                gone = now
                end(victim.process)
            producer.produce("load", b"x" * 100, partition=number % PARTITIONS, on_delivery=acked)
            number += 1
            producer.poll(max(0.0, begun + number / RATE - time.monotonic()))
        producer.flush(60)
        if failed or len(acks) < PARTITIONS:
            raise BadRun(f"{len(failed)} records failed, such as: {failed[:1]}; {len(acks)} partitions had acks")
        assert gone is not None
        return max(_longest(times, gone) for times in acks.values())


def _longest(times: list[float], since: float) -> float:
    """The longest pause between two acks that reaches behind a moment."""
    return max(after - before for before, after in pairwise(times) if after >= since)
