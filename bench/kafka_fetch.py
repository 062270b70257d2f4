"""Fetch from the start of a topic: one librdkafka consumer against both, and the most that one Dray process gives."""

from typing import Final

from bench._brokers import (
    BadRun,
    Samples,
    create_topic,
    raw_load,
    rdkafka_consume,
    rdkafka_produce,
    records_in,
    topic_on,
)
from bench._targets import Target, peer, running, subject
from bench.harness import Absolute, Case, Comparison, Report

PARTITIONS: Final = 4
RECORDS: Final = 800_000
RECORD_BYTES: Final = 1024
BATCHES_SECONDS: Final = 3.0
RAW_SECONDS: Final = 5.0
RAW_CONNECTIONS: Final = 4


def cases() -> list[Case]:
    samples = Samples()
    topics = Filled()
    return [
        Comparison(
            "one consumer from the start",
            subject=lambda: _consume(subject(), "dray", topics, samples),
            peer=lambda: _consume(peer(), "kafka", topics, samples),
            mark=0.7,
            unit="MB/s",
            note="1 KiB records as a librdkafka producer batched them, 4 partitions, librdkafka",
        ),
        Report("one consumer: CPU seconds per GB", run=samples.medians),
        Absolute(
            "one process, 1 MiB responses",
            run=lambda: _raw(subject()),
            mark=500.0,
            unit="MB/s",
            note="4 connections, 128 KiB batches",
        ),
    ]


class Filled:
    """A topic on each target that is filled once and read by every run."""

    def __init__(self) -> None:
        self._topics: dict[str, str] = {}

    def on(self, target: Target) -> str:
        if target.name not in self._topics:
            broker = running(target)
            topic = create_topic(broker, PARTITIONS)
            rdkafka_produce(broker, topic, RECORDS, RECORD_BYTES)
            if (found := records_in(broker, topic, PARTITIONS)) != RECORDS:
                raise BadRun(f"{RECORDS} records were acknowledged and {found} are there")
            self._topics[target.name] = topic
        return self._topics[target.name]


def _consume(target: Target, side: str, topics: Filled, samples: Samples) -> float:
    topic = topics.on(target)
    figures = rdkafka_consume(running(target), topic, PARTITIONS, RECORDS)
    samples.add(f"{side} broker", figures.broker_s_per_gb)
    samples.add(f"{side} client", figures.client_s_per_gb)
    return figures.mb_per_s


def _raw(target: Target) -> float:
    broker = running(target)
    with topic_on(broker, PARTITIONS) as topic:
        raw_load(broker, "produce", topic, partitions=PARTITIONS, seconds=BATCHES_SECONDS)
        return raw_load(
            broker, "fetch", topic, partitions=PARTITIONS, connections=RAW_CONNECTIONS, seconds=RAW_SECONDS
        ).mb_per_s
