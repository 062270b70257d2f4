"""Small requests: one record each over many connections. What counts is the cost of a request."""

from collections.abc import Callable
from typing import Final

from bench._brokers import Samples, raw_load, topic_on
from bench._targets import Target, peer, running, subject
from bench.harness import Absolute, Case, Comparison, Report

PARTITIONS: Final = 4
CONNECTIONS: Final = 64
INFLIGHT: Final = 5
"""On each connection; what librdkafka and Java have at most by default."""
SECONDS: Final = 4.0


def cases() -> list[Case]:
    many, lone = Samples(), Samples()
    return [
        _against_kafka("many in flight", INFLIGHT, many, mark=0.5),
        Absolute(
            "one record per request, many in flight: broker CPU",
            run=_median(many, "dray: broker CPU us/request"),
            mark=80.0,
            unit="us/request",
            at_most=True,
        ),
        Absolute(
            "one record per request, many in flight: one process",
            run=_median(many, "dray: requests/s"),
            mark=12_000.0,
            unit="requests/s",
        ),
        Report("one record per request, many in flight", run=many.medians),
        _against_kafka("one in flight", 1, lone, mark=0.4),
        Report("one record per request, one in flight", run=lone.medians),
    ]


def _against_kafka(name: str, inflight: int, samples: Samples, mark: float) -> Comparison:
    """CPU against CPU: a neighbour on the machine slows both, and changes this least."""
    return Comparison(
        f"one record per request, {name}: requests per CPU-second of the broker",
        subject=lambda: _one(subject(), "dray", inflight, samples),
        peer=lambda: _one(peer(), "kafka", inflight, samples),
        mark=mark,
        unit="requests/CPU-s",
        note=f"{CONNECTIONS} connections, {inflight} in flight on each",
    )


def _median(samples: Samples, figure: str) -> Callable[[], float]:
    """A figure of the runs that the comparison before it made."""
    return lambda: samples.medians()[figure]


def _one(target: Target, side: str, inflight: int, samples: Samples) -> float:
    broker = running(target)
    with topic_on(broker, PARTITIONS) as topic:
        figures = raw_load(
            broker, "produce", topic, partitions=PARTITIONS, connections=CONNECTIONS, inflight=inflight,
            batch_records=1, seconds=SECONDS,
        )  # fmt: skip
    samples.add(f"{side}: requests/s", figures.requests_per_s)
    samples.add(f"{side}: broker CPU us/request", figures.broker_us_per_request)
    samples.add(f"{side}: client CPU us/request", figures.spent.client_s / figures.requests * 1e6)
    samples.add(f"{side}: p50 ms", figures.p50_ms)
    samples.add(f"{side}: p99 ms", figures.p99_ms)
    return 1e6 / figures.broker_us_per_request
