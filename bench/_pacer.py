"""A librdkafka producer at a fixed rate that measures acknowledgements; a program that answers with one line of JSON.

    python -m bench._pacer HOST:PORT TOPIC --rate 1000 --seconds 5

Idempotent with a linger of 5 ms, so a slow broker gets larger batches and not
a longer queue. A latency counts from the moment the record was due, so a
stall is charged for every record that it delays.
"""

import argparse
import json
import math
import time
from array import array
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

_FLUSH_SECONDS: Final = 60.0
_WARM_RECORDS: Final = 20


def pace(address: str, topic: str, rate: float, seconds: float, record_bytes: int) -> dict[str, object]:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "linger.ms": 5})
    latencies = array("d")
    errors: dict[str, int] = {}

    def on_delivery(due: float) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                latencies.append(time.perf_counter() - due)
            else:
                errors[error.name()] = errors.get(error.name(), 0) + 1

        return delivered

    value = bytes(record_bytes)
    for _ in range(_WARM_RECORDS):  # connections, the producer id and metadata are not what is measured
        producer.produce(topic, value)
    producer.flush(_FLUSH_SECONDS)
    count = math.floor(rate * seconds)
    start = time.perf_counter()
    for turn in range(count):
        due = start + turn / rate
        while (wait := due - time.perf_counter()) > 0:
            producer.poll(wait)
        producer.produce(topic, value, on_delivery=on_delivery(due))
        producer.poll(0)
    unsent = producer.flush(_FLUSH_SECONDS)
    ordered = sorted(latencies)
    if unsent or errors or len(ordered) != count:
        return {"errors": {**errors, "unanswered": count - len(ordered)}}
    cut = {name: ordered[math.ceil(part * count) - 1] * 1000 for name, part in (("p50_ms", 0.5), ("p99_ms", 0.99))}
    return {**cut, "max_ms": ordered[-1] * 1000, "client_cpu_s": time.process_time(), "errors": {}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench._pacer")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--record-bytes", type=int, default=1024)
    print(json.dumps(pace(**vars(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
