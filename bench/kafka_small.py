"""Small requests: one record each over many connections. What counts is the cost of a request."""

from typing import Final

from bench._brokers import interleaved, raw_load, topic_on
from bench._targets import Target, peer, running, subject
from bench.harness import RUNS, Case, Report

PARTITIONS: Final = 4
CONNECTIONS: Final = 64
SECONDS: Final = 4.0


def cases() -> list[Case]:
    return [
        Report("one record per request", run=_both, note=f"{CONNECTIONS} connections, one request in flight on each")
    ]


def _both() -> dict[str, float]:
    return interleaved(RUNS, {"dray": lambda: _one(subject()), "kafka": lambda: _one(peer())})


def _one(target: Target) -> dict[str, float]:
    broker = running(target)
    with topic_on(broker, PARTITIONS) as topic:
        figures = raw_load(
            broker, "produce", topic, partitions=PARTITIONS, connections=CONNECTIONS, inflight=1, batch_records=1,
            seconds=SECONDS,
        )  # fmt: skip
    return {
        "requests/s": figures.requests_per_s,
        "broker CPU us/request": figures.broker_us_per_request,
        "client CPU us/request": figures.spent.client_s / figures.requests * 1e6,
        "p50 ms": figures.p50_ms,
        "p99 ms": figures.p99_ms,
    }
