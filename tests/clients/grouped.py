"""Members of a group in processes of their own, and what they have told so far."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic, sleep  # between two looks at other processes
from typing import Self, TypeAlias

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 60
"""Only a hang takes this long."""
PYTHON = (sys.executable, str(Path(__file__).with_name("member.py")))
Part: TypeAlias = "int | tuple[str, int]"
"""A partition of the topic; of a pattern, with its topic."""


class Member:
    """One consumer that subscribes, in its own process."""

    def __init__(
        self, kind: str, bootstrap: str, topic: str, group: str, *,
        program: Sequence[str] = PYTHON, hold: Path | None = None, session_ms: int | None = None,
    ) -> None:  # fmt: skip
        """`program` is told KIND BOOTSTRAP TOPIC GROUP and speaks as member.py does."""
        more = {} if hold is None else {"DRAY_TEST_HOLD": str(hold)}
        more |= {} if session_ms is None else {"DRAY_TEST_SESSION_MS": str(session_ms)}
        self._process = subprocess.Popen(
            [*program, kind, bootstrap, topic, group], stdout=subprocess.PIPE, text=True, env={**os.environ, **more}
        )
        self._topic = topic
        self.assigned: list[Part] = []
        self.changes = 0
        """How often its work has changed."""
        self.holds = False
        """It takes its time in the middle of a rebalance."""
        self.seen: list[tuple[Part, int]] = []
        self.reads: list[tuple[Part, int]] = []
        self.owned: set[tuple[int, Part]] = set()
        """What it has had, with the generation or epoch, where its library tells that."""
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
                parts = [self._part(*one) for one in said["assigned"]]
                if "generation" in said:
                    self.owned.update((said["generation"], part) for part in parts)
                self.assigned = parts
                self.changes += 1
            elif "holds" in said:
                self.holds = True
            elif "seen" in said:
                self.seen.append(self._place(said["seen"]))
            else:
                self.reads.append(self._place(said["read"]))

    def _part(self, topic: str, partition: int) -> Part:
        return (topic, partition) if self._topic.startswith("^") else partition

    def _place(self, said: list) -> tuple[Part, int]:
        return self._part(said[0], said[1]), said[2]

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def pause(self) -> None:
        """It does nothing any more, and does not know it."""
        self._process.send_signal(signal.SIGSTOP)
        self.assigned = []

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

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


def share(members: Sequence[Member], partitions: "int | Iterable[Part]") -> None:
    """Every partition has exactly one of these, and each has some."""
    wanted = list(range(partitions)) if isinstance(partitions, int) else sorted(partitions)

    def shared() -> bool:
        assert all(member.lives for member in members), "a member has ended; its last words are on stderr"
        parts = [list(member.assigned) for member in members]
        return all(parts) and sorted(partition for part in parts for partition in part) == wanted

    try:
        eventually(f"{len(members)} members share {len(wanted)} partitions", shared)
    except AssertionError as error:
        raise AssertionError(f"{error}: {[member.assigned for member in members]}") from error


def assert_one_owner(members: Iterable[Member]) -> None:
    """No partition had two owners in one generation, as members tell it whose libraries know."""
    owners: dict[tuple[int, Part], Member] = {}
    for member in members:
        for owned in member.owned:
            assert owners.setdefault(owned, member) is member, f"two members had generation and partition {owned}"


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
