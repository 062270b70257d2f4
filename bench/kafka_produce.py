"""Produce throughput: one librdkafka producer against both, and the most that one Dray process takes."""

from typing import Final

from bench._brokers import BadRun, Samples, create_topic, raw_load, rdkafka_produce, records_in
from bench._targets import Target, peer, running, subject
from bench.harness import Absolute, Case, Comparison, Report

PARTITIONS: Final = 4
RECORDS: Final = 800_000
RECORD_BYTES: Final = 1024
RAW_SECONDS: Final = 5.0
RAW_CONNECTIONS: Final = 16


def cases() -> list[Case]:
    samples = Samples()
    return [
        Comparison(
            "one producer",
            subject=lambda: _produce(subject(), "dray", samples),
            peer=lambda: _produce(peer(), "kafka", samples),
            mark=0.7,
            unit="MB/s",
            note="1 KiB records, acks=all, linger 5 ms, 4 partitions, librdkafka",
        ),
        Report("one producer: CPU seconds per GB", run=samples.medians),
        Absolute(
            "one process, 128 KiB batches",
            run=lambda: _raw(subject()),
            mark=250.0,
            unit="MB/s",
            note=f"{RAW_CONNECTIONS} connections, 5 requests in flight on each",
        ),
    ]


def _produce(target: Target, side: str, samples: Samples) -> float:
    broker = running(target)
    topic = create_topic(broker, PARTITIONS)  # it stays: memory that a deletion frees is slow again soon
    figures = rdkafka_produce(broker, topic, RECORDS, RECORD_BYTES)
    _expect(records_in(broker, topic, PARTITIONS), RECORDS)
    samples.add(f"{side} broker", figures.broker_s_per_gb)
    samples.add(f"{side} client", figures.client_s_per_gb)
    return figures.mb_per_s


def _raw(target: Target) -> float:
    broker = running(target)
    topic = create_topic(broker, PARTITIONS)
    figures = raw_load(
        broker, "produce", topic, partitions=PARTITIONS, connections=RAW_CONNECTIONS, seconds=RAW_SECONDS
    )
    _expect(records_in(broker, topic, PARTITIONS), figures.records)
    return figures.mb_per_s


def _expect(found: int, acknowledged: int) -> None:
    if found != acknowledged:
        raise BadRun(f"{acknowledged} records were acknowledged and {found} are there")
