"""Members of a group in processes of their own, and what they have told so far."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep  # between two looks at other processes
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 60
"""Only a hang takes this long."""
SCRIPT = Path(__file__).with_name("member.py")


class Member:
    """One consumer that subscribes, in its own process."""

    def __init__(self, kind: str, bootstrap: str, topic: str, group: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), kind, bootstrap, topic, group], stdout=subprocess.PIPE, text=True
        )
        self.assigned: list[int] = []
        self.changes = 0
        """How often its work has changed."""
        self.seen: list[tuple[int, int]] = []
        self.reads: list[tuple[int, int]] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "assigned" in said:
                self.assigned = said["assigned"]
                self.changes += 1
            elif "seen" in said:
                self.seen.append(tuple(said["seen"]))
            else:
                self.reads.append(tuple(said["read"]))

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def leave(self) -> None:
        """As a program that ends cleanly."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._reader.join()
        self.assigned = []

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self.assigned = []


def eventually(what: str, holds: Callable[[], bool]) -> None:
    """Wait until it is so; what else comes meanwhile does not matter."""
    end = monotonic() + PATIENCE_S
    while not holds():
        assert monotonic() < end, what
        sleep(0.05)


def share(members: Sequence[Member], partitions: int) -> None:
    """Every partition has exactly one of these, and each has some."""

    def shared() -> bool:
        assert all(member.lives for member in members), "a member has ended; its last words are on stderr"
        parts = [list(member.assigned) for member in members]
        return all(parts) and sorted(partition for part in parts for partition in part) == list(range(partitions))

    eventually(f"{len(members)} members share {partitions} partitions", shared)


def fill(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        for number in range(each):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, partitions)]).values()
    made.result(PATIENCE_S)
