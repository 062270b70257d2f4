"""Turns the supported matrix into docs/kafka-support.md.

python -m tools.generate_kafka_support            write the page
python -m tools.generate_kafka_support --check    fail if the page is not current
"""

import sys

from dray.servers.kafka.support import APIS, Api
from tools.pages import main_of

HEAD = """# What Dray speaks of the Kafka protocol

Made by tools/generate_kafka_support.py from `dray.servers.kafka.support`; do not edit.

Where answers differ from Apache Kafka's, and why: kafka-differences.md.

Any other key or version closes the connection; ApiVersions alone answers an unknown version, with error 35 and its own
range. "Needs" is what a principal must be allowed to do.

| key | API | advertised | served | needs | left out |
| ---: | --- | --- | --- | --- | --- |
"""
TAIL = """
## What an idempotent producer may count on

Under one producer id and epoch no record is stored twice and none out of order, whatever happens to connections,
brokers and the store in between; a record that was acknowledged is there.

A producer that gives a message up (`message.timeout.ms` of librdkafka, `delivery.timeout.ms` of Java) begins a new
epoch and counts from 0 again. What it had sent under the old epoch without seeing an answer may be stored all the same,
and what of it has not timed out is sent again under the new one: such a record may be there twice, as with any Kafka
broker. Leave the timeout at its default of minutes, above the longest outage of the store that should go unnoticed.

## When the store is slow

Above `wal.pause_bytes` nothing more is read from connections that produce, until half of that is stored; other
connections are served as ever. Above `wal.max_buffer_bytes` a batch is answered with 56, which clients try again with.
A batch that is not stored in the time its producer gave (`request.timeout.ms`) is answered with 7: it may still be
stored, and sending it again under its producer id stores it once.
The limits of connections, requests and answers are the settings `kafka.*` of `drayd config show`.
"""


def row(api: Api) -> str:
    needs = ", ".join(
        f"{operation.name} {resource.name}".lower().replace("_", " ") for operation, resource in api.access
    )
    versions = (f"{low}-{high}" for low, high in (api.advertised, api.served))
    return f"| {api.key} | {api.name} | {' | '.join(versions)} | {needs or 'nothing'} | {api.note} |\n"


def page() -> str:
    return HEAD + "".join(row(api) for api in sorted(APIS, key=lambda api: api.key)) + TAIL


if __name__ == "__main__":
    sys.exit(main_of("generate_kafka_support", "kafka-support.md", page))
