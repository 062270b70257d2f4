"""A librdkafka producer at a steady rate over many partitions; a program that answers with one line of JSON.

    python -m bench._steadyload HOST:PORT TOPIC,TOPIC... PARTITIONS --rate 1000 --window 30 --windows 4 --times FILE

It tells the latencies of each window, counted from the moment a record was due, and writes when each record was due:
into FILE, as lines of topic, partition, offset and milliseconds, for one record in sixteen.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

_FLUSH_SECONDS: Final = 120.0
_KEPT: Final = 16


class Load:
    """Sends, and remembers."""

    def __init__(self, address: str, topics: list[str], partitions: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "linger.ms": 5}
        )
        self._places = [(topic, partition) for partition in range(partitions) for topic in topics]
        self.windows: list[list[float]] = []
        self.times: list[str] = []
        self.errors: list[str] = []

    def run(self, rate: float, window_s: float, windows: int) -> None:
        """Send, window after window, without a pause between them."""
        value, count = bytes(1024), math.floor(rate * window_s)
        start, start_ms = time.perf_counter(), time.time() * 1000
        for window in range(windows):
            self.windows.append([])
            for turn in range(window * count, (window + 1) * count):
                due = start + turn / rate
                while (wait := due - time.perf_counter()) > 0:
                    self._producer.poll(wait)
                topic, partition = self._places[turn % len(self._places)]
                self._send(topic, partition, value, due, start_ms + turn / rate * 1000, self.windows[-1])
                self._producer.poll(0)
        left = self._producer.flush(_FLUSH_SECONDS)
        if left:
            self.errors.append(f"{left} records were not answered")

    def _send(self, topic: str, partition: int, value: bytes, due: float, due_ms: float, taken: list[float]) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.errors.append(error.name())
                return
            taken.append((time.perf_counter() - due) * 1000)
            offset = message.offset() or 0
            if offset % _KEPT == 0:
                self.times.append(f"{topic} {partition} {offset} {due_ms:.0f}")

        self._producer.produce(topic, value, partition=partition, on_delivery=told)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench._steadyload")
    parser.add_argument("address")
    parser.add_argument("topics")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--window", type=float, default=30.0)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--times", type=Path, required=True)
    given = parser.parse_args()
    load = Load(given.address, given.topics.split(","), given.partitions)
    load.run(given.rate, given.window, given.windows)
    given.times.write_text("\n".join(load.times), encoding="utf-8")
    windows = [{"p50_ms": _part(taken, 0.5), "p99_ms": _part(taken, 0.99)} for taken in load.windows]
    print(json.dumps({"windows": windows, "errors": load.errors[:10]}), flush=True)


def _part(taken: list[float], part: float) -> float:
    ordered = sorted(taken)
    return ordered[math.ceil(part * len(ordered)) - 1] if ordered else math.inf


if __name__ == "__main__":
    main()
