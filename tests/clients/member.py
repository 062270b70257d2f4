"""A member of a group in a process of its own, so that it can be killed: `python member.py KIND BOOTSTRAP TOPIC GROUP`.

KIND is a library, or a library and one of its assignors: `aiokafka/sticky`. A TOPIC that begins with ^ is a pattern.

Tells one JSON object a line: `{"assigned": [[topic, partition], ...]}` whenever its work changes,
`{"read": [topic, partition, offset]}` for each record, once it is committed; those of librdkafka
`{"seen": [topic, partition, offset]}` too, when they have it. A SIGTERM makes it leave the group. While the file
`DRAY_TEST_HOLD` says `revoke` it does not let go of partitions, and while it says `assign` a leader does not hand them
out: it tells `{"holds": true}`.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

SESSION_MS = int(os.environ.get("DRAY_TEST_SESSION_MS", "6000"))
BEAT_MS = min(500, SESSION_MS // 8)
PATIENT_MS = 45_000
RECONNECT_MS = 500
"""kafka-python comes to wait up to 30 s before it looks for a broker again, librdkafka 10 s."""
METADATA_MS = 1_000
"""How soon a pattern finds a topic that was made later."""
JOIN_MS = 30_000
"""kafka-python 3.0 loses a join whose `poll` ends between its assignment and the answer to its SyncGroup, if it joined
because it had learned of partitions: it then neither beats nor joins again. So one `poll` has to last for all of it."""
COOPERATIVE = "cooperative-sticky"
HOLD = Path(os.environ.get("DRAY_TEST_HOLD", "/nonexistent"))
stopping = False


def stop(*_: object) -> None:
    global stopping
    stopping = True


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


class Own:
    """The partitions that are this member's."""

    def __init__(self, assignor: str) -> None:
        self._grows = assignor == COOPERATIVE
        self._partitions: set[tuple[str, int]] = set()

    def given(self, partitions: Iterable) -> None:
        if not self._grows:
            self._partitions.clear()
        self._partitions.update((one.topic, one.partition) for one in partitions)
        self._tell()

    def taken(self, partitions: Iterable) -> None:
        hold("revoke")
        self._partitions.difference_update((one.topic, one.partition) for one in partitions)
        self._tell()

    def _tell(self) -> None:
        tell(assigned=sorted(self._partitions))


def hold(where: str) -> None:
    """Take as long as a test wants."""
    if HOLD.exists() and HOLD.read_text() == where:
        tell(holds=True)
        while HOLD.exists() and not stopping:
            time.sleep(0.02)  # between two looks at a file of another process


def confluent(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    classic = {
        "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": BEAT_MS,
        "partition.assignment.strategy": assignor or "range",
    }  # fmt: skip
    librdkafka(bootstrap, topic, group, classic, Own(assignor))


def confluent_patient(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    """A member that nobody misses before its broker is replaced."""
    settings = {"session.timeout.ms": PATIENT_MS, "heartbeat.interval.ms": BEAT_MS}
    librdkafka(bootstrap, topic, group, settings, Own(assignor))


def confluent_consumer(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    """The protocol of KIP-848: the broker says how often it beats."""
    settings = {"group.protocol": "consumer"} | ({"group.remote.assignor": assignor} if assignor else {})
    librdkafka(bootstrap, topic, group, settings, Own(COOPERATIVE))


def librdkafka(bootstrap: str, topic: str, group: str, config: dict[str, str | int], own: Own) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "reconnect.backoff.max.ms": RECONNECT_MS,
        "topic.metadata.refresh.interval.ms": METADATA_MS, **config,
    })  # fmt: skip
    consumer.subscribe(
        [topic], on_assign=lambda _, given: own.given(given), on_revoke=lambda _, taken: own.taken(taken)
    )
    while not stopping:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        place = [message.topic(), message.partition(), message.offset()]
        tell(seen=place)
        if commits(consumer, message):
            tell(read=place)
    consumer.close()


def commits(consumer, message) -> bool:
    """Whether it is committed; if not, somebody else has the partition now, and reads it again."""
    from confluent_kafka import KafkaError, KafkaException

    lost = {
        KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH, KafkaError._NO_OFFSET,
    }  # fmt: skip
    while not stopping:
        try:
            consumer.commit(message=message, asynchronous=False)
            return True
        except KafkaException as error:  # or a broker is away, and another one takes it
            if error.args[0].code() in lost:
                return False
    return False


def kafka_python(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    import kafka
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

    class Holding(RangePartitionAssignor):
        def assign(self, *asked):
            hold("assign")
            return super().assign(*asked)

    assignors = {
        "": Holding, "range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor, COOPERATIVE: CooperativeStickyAssignor,
    }  # fmt: skip
    own = Own(assignor)

    class Listener(kafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked) -> None:
            own.taken(revoked)

        def on_partitions_assigned(self, assigned) -> None:
            own.given(assigned)

        def on_partitions_lost(self, lost) -> None:
            own.taken(lost)

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, reconnect_backoff_max_ms=RECONNECT_MS,
        metadata_max_age_ms=METADATA_MS, partition_assignment_strategy=[assignors[assignor]],
    )  # fmt: skip
    consumer.subscribe(**subscribed(topic), listener=Listener())
    while not stopping:
        try:
            found = consumer.poll(timeout_ms=200 if consumer.assignment() else JOIN_MS)
            if not found:
                continue
            consumer.commit()
        except KafkaError:  # a broker that is away is told as an error, and passes
            continue
        tell_read(found)
    consumer.close()


async def aiokafka(bootstrap: str, topic: str, group: str, assignor: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {
        "": RoundRobinPartitionAssignor, "range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }  # fmt: skip
    own = Own(assignor)

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked) -> None:
            own.taken(revoked)

        async def on_partitions_assigned(self, assigned) -> None:
            own.given(assigned)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, metadata_max_age_ms=METADATA_MS,
        partition_assignment_strategy=[assignors[assignor]],
    )  # fmt: skip
    consumer.subscribe(**subscribed(topic), listener=Listener())
    await consumer.start()
    while not stopping:
        found = await consumer.getmany(timeout_ms=200)
        if not found:
            continue
        try:
            await consumer.commit()
        except KafkaError:
            continue
        tell_read(found)
    await consumer.stop()


def subscribed(topic: str) -> dict[str, object]:
    return {"pattern": topic} if topic.startswith("^") else {"topics": [topic]}


def tell_read(found) -> None:
    for records in found.values():
        for one in records:
            tell(read=[one.topic, one.partition, one.offset])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    kind, *where = sys.argv[1:]
    library, _, assignor = kind.partition("/")
    if library == "aiokafka":
        asyncio.run(aiokafka(*where, assignor))
    else:
        {
            "confluent": confluent,
            "confluent-patient": confluent_patient,
            "confluent-consumer": confluent_consumer,
            "kafka-python": kafka_python,
        }[library](*where, assignor)
