"""What a group has committed, looked at again and again by somebody who is not in it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, TopicPartition


class Commits(threading.Thread):
    """Looks at the committed offsets again and again, at whichever broker answers."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        self._asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._stopping = threading.Event()
        self.looks: list[list[int]] = []

    def run(self) -> None:
        while not self._stopping.wait(0.1):
            try:
                told = self._consumer.committed(self._asked, timeout=5)
            except KafkaException:  # the broker that was asked is gone
                continue
            if all(one.error is None for one in told):
                self.looks.append([one.offset for one in told])

    def have_come_to(self, offset: int) -> bool:
        """Whether all of them were there at the last look."""
        return bool(self.looks) and self.looks[-1] == [offset] * len(self._asked)

    def assert_never_back(self) -> None:
        for partition in range(len(self._asked)):
            offsets = [look[partition] for look in self.looks]
            assert offsets == sorted(offsets), f"what is committed stays committed: partition={partition}"

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._consumer.close()


@contextmanager
def watched(bootstrap: str, topic: str, partitions: int, group: str) -> Iterator[Commits]:
    """At the end no offset has gone back."""
    commits = Commits(bootstrap, topic, partitions, group)
    commits.start()
    try:
        yield commits
    finally:
        commits.stop()
    commits.assert_never_back()
