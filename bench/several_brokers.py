"""Three brokers against one, on the same machine and in the same run.

They share its cores with the client and with each other, so this is what
several brokers cost, not what they could do on machines of their own.
"""

from collections.abc import Mapping
from typing import Final

from bench._brokers import BadRun, create_topic, interleaved, rdkafka_consume, rdkafka_produce, records_in
from bench._targets import DRAY, Target, dray_brokers, running
from bench.harness import Case, Report

BROKERS: Final = 3
PARTITIONS: Final = 12
RECORDS: Final = 400_000
RECORD_BYTES: Final = 1024
RUNS: Final = 3


def cases() -> list[Case]:
    several = dray_brokers(BROKERS)
    sides = {"one broker": lambda: _round(DRAY), "three brokers": lambda: _round(several)}
    return [
        Report(
            "three brokers against one",
            run=lambda: interleaved(RUNS, sides),
            note=f"1 KiB records, {PARTITIONS} partitions, one librdkafka client; all on the same cores",
        )
    ]


def _round(target: Target) -> Mapping[str, float]:
    """Produce to a new topic, and read it from its start."""
    broker = running(target)
    topic = create_topic(broker, PARTITIONS)
    produced = rdkafka_produce(broker, topic, RECORDS, RECORD_BYTES)
    if (found := records_in(broker, topic, PARTITIONS)) != RECORDS:
        raise BadRun(f"{RECORDS} records were acknowledged and {found} are there")
    fetched = rdkafka_consume(broker, topic, PARTITIONS, RECORDS)
    return {
        "produce MB/s": produced.mb_per_s,
        "produce: broker CPU-s/GB": produced.broker_s_per_gb,
        "fetch MB/s": fetched.mb_per_s,
        "fetch: broker CPU-s/GB": fetched.broker_s_per_gb,
    }
