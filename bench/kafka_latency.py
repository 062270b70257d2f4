"""How long an acknowledgement takes at 1,000 records a second, with every record on the disk before it.

Dray always acknowledges after the data is durable; Kafka does so only with
`flush.messages=1`, so that is what it is compared with. Kafka on its defaults,
which acknowledges from memory, is reported beside it.
"""

import json
import sys
from collections.abc import Mapping
from typing import Final

from bench._brokers import ROOT, BadRun, Samples, interleaved, topic_on
from bench._targets import Target, peer, running, subject
from bench.harness import Case, Comparison, Report
from tools.peers.process import run

PARTITIONS: Final = 4
RATE: Final = 1000.0
SECONDS: Final = 5.0
DURABLE: Final = {"flush.messages": "1"}


def cases() -> list[Case]:
    samples = Samples()
    return [
        Comparison(
            "1/p99 of an acknowledgement at 1,000 records/s",
            subject=lambda: _rate(subject(), "dray", {}, samples),
            peer=lambda: _rate(peer(), "kafka, flush.messages=1", DURABLE, samples),
            mark=1.0,
            unit="1/s",
            note="against Kafka with flush.messages=1; idempotent librdkafka producer, linger 5 ms, 4 partitions",
        ),
        Report("acknowledgement at 1,000 records/s", run=samples.medians),
        Report("Kafka on its defaults, for context", run=lambda: interleaved(1, {"kafka": lambda: _pace(peer(), {})})),
    ]


def _rate(target: Target, side: str, config: Mapping[str, str], samples: Samples) -> float:
    figures = _pace(target, config)
    for name, value in figures.items():
        samples.add(f"{side}: {name}", value)
    return 1000.0 / figures["p99 ms"]


def _pace(target: Target, config: Mapping[str, str]) -> dict[str, float]:
    broker = running(target)
    with topic_on(broker, PARTITIONS, config) as topic:
        flags = [f"--rate={RATE}", f"--seconds={SECONDS}"]
        said = json.loads(run([sys.executable, "-m", "bench._pacer", broker.address, topic, *flags], directory=ROOT))
    if said["errors"]:
        raise BadRun(f"not every record was acknowledged: {said['errors']}")
    return {"p50 ms": said["p50_ms"], "p99 ms": said["p99_ms"]}
