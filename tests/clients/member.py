"""A member of a group in a process of its own, so that it can be killed: `python member.py KIND BOOTSTRAP TOPIC GROUP`.

Tells one JSON object a line: `{"assigned": [partitions]}` whenever its work changes, `{"read": [partition, offset]}`
for each record, once it is committed; those of librdkafka `{"seen": [partition, offset]}` too, when they have it. A
SIGTERM makes it leave the group.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterable

SESSION_MS, BEAT_MS = 6_000, 500
PATIENT_MS = 45_000
RECONNECT_MS = 500
"""kafka-python comes to wait up to 30 s before it looks for a broker again, librdkafka 10 s."""
JOIN_MS = 30_000
"""kafka-python 3.0 loses a join whose `poll` ends between its assignment and the answer to its SyncGroup, if it joined
because it had learned of partitions: it then neither beats nor joins again. So one `poll` has to last for all of it."""
stopping = False


def stop(*_: object) -> None:
    global stopping
    stopping = True


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


def tell_assigned(partitions: Iterable[int]) -> None:
    tell(assigned=sorted(partitions))


def confluent(bootstrap: str, topic: str, group: str) -> None:
    classic = {
        "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": BEAT_MS, "partition.assignment.strategy": "range",
    }  # fmt: skip
    librdkafka(bootstrap, topic, group, classic)


def confluent_patient(bootstrap: str, topic: str, group: str) -> None:
    """A member that nobody misses before its broker is replaced."""
    librdkafka(bootstrap, topic, group, {"session.timeout.ms": PATIENT_MS, "heartbeat.interval.ms": BEAT_MS})


def confluent_consumer(bootstrap: str, topic: str, group: str) -> None:
    """The protocol of KIP-848: the broker says how often it beats."""
    librdkafka(bootstrap, topic, group, {"group.protocol": "consumer"})


def librdkafka(bootstrap: str, topic: str, group: str, config: dict[str, str | int]) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "reconnect.backoff.max.ms": RECONNECT_MS, **config,
    })  # fmt: skip
    own: set[int] = set()

    def assigned(_, given) -> None:
        own.update(one.partition for one in given)
        tell_assigned(own)

    def revoked(_, taken) -> None:
        own.difference_update(one.partition for one in taken)
        tell_assigned(own)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    while not stopping:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        tell(seen=[message.partition(), message.offset()])
        if commits(consumer, message):
            tell(read=[message.partition(), message.offset()])
    consumer.close()


def commits(consumer, message) -> bool:
    """Whether it is committed; if not, somebody else has the partition now, and reads it again."""
    from confluent_kafka import KafkaError, KafkaException

    lost = {
        KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._NO_OFFSET,
    }  # fmt: skip
    while not stopping:
        try:
            consumer.commit(message=message, asynchronous=False)
            return True
        except KafkaException as error:  # or a broker is away, and another one takes it
            if error.args[0].code() in lost:
                return False
    return False


def kafka_python(bootstrap: str, topic: str, group: str) -> None:
    import kafka
    from kafka.errors import KafkaError

    class Listener(kafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked) -> None:
            tell_assigned([])

        def on_partitions_assigned(self, assigned) -> None:
            tell_assigned(one.partition for one in assigned)

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, reconnect_backoff_max_ms=RECONNECT_MS,
    )  # fmt: skip
    consumer.subscribe([topic], listener=Listener())
    while not stopping:
        try:
            found = consumer.poll(timeout_ms=200 if consumer.assignment() else JOIN_MS)
            if not found:
                continue
            consumer.commit()
        except KafkaError:  # a broker that is away is told as an error, and passes
            continue
        for records in found.values():
            for one in records:
                tell(read=[one.partition, one.offset])
    consumer.close()


async def aiokafka(bootstrap: str, topic: str, group: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked) -> None:
            tell_assigned([])

        async def on_partitions_assigned(self, assigned) -> None:
            tell_assigned(one.partition for one in assigned)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS,
    )  # fmt: skip
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not stopping:
        found = await consumer.getmany(timeout_ms=200)
        if not found:
            continue
        try:
            await consumer.commit()
        except KafkaError:
            continue
        for records in found.values():
            for one in records:
                tell(read=[one.partition, one.offset])
    await consumer.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    kind, *where = sys.argv[1:]
    if kind == "aiokafka":
        asyncio.run(aiokafka(*where))
    else:
        {
            "confluent": confluent,
            "confluent-patient": confluent_patient,
            "confluent-consumer": confluent_consumer,
            "kafka-python": kafka_python,
        }[kind](*where)
