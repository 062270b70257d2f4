"""The life of a group whose members are of one kind: they come, go, are restarted, die, and fall asleep."""

from collections.abc import Sequence
from contextlib import ExitStack

from confluent_kafka.admin import AdminClient, NewPartitions

from .grouped import PATIENCE_S, PYTHON, Member, assert_one_owner, eventually, fill, make_topic, share
from .watching import watched

PARTITIONS, EACH = 6, 4
SESSION_MS = 3_000
QUICK = {
    "groups__min_session": "2s",
    "groups__consumer_session": f"{SESSION_MS}ms",
    "groups__consumer_heartbeat": "500ms",
    "groups__consumer_unsettled_heartbeat": "100ms",
    "groups__consumer_assignment_interval": "50ms",
    "groups__regex_refresh": "100ms",
}
"""A broker on which a lost member is missed soon."""


class Life:
    """One group. Used as a block: whoever runs at the end is killed."""

    def __init__(self, kind: str, bootstrap: str, topic: str, program: Sequence[str] = PYTHON) -> None:
        self.kind, self.bootstrap, self.topic, self.program = kind, bootstrap, topic, program
        self.group = topic.strip("^.*[]")
        self.all: list[Member] = []
        self.there: list[Member] = []
        self.rounds = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Life":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def come(self, count: int = 1) -> None:
        for _ in range(count):
            member = Member(
                self.kind, self.bootstrap, self.topic, self.group, program=self.program, session_ms=SESSION_MS
            )
            self.all.append(self._stack.enter_context(member))
            self.there.append(member)

    def share(self) -> None:
        share(self.there, PARTITIONS)

    def write(self) -> None:
        fill(self.bootstrap, self.topic, PARTITIONS, EACH)
        self.rounds += 1

    def read(self) -> None:
        """A round of records is written, and all so far are read by somebody."""
        self.write()
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.rounds * EACH)}
        eventually(
            f"{len(wanted)} records are read", lambda: wanted <= {read for one in self.all for read in one.reads}
        )

    def assert_once(self) -> None:
        reads = [read for member in self.all for read in member.reads]
        assert len(reads) == len(set(reads)), "what was committed is not read again"
        assert_one_owner(self.all)


def live(
    kind: str, bootstrap: str, topic: str, most: int, program: Sequence[str] = PYTHON, *, restarts: bool = True
) -> None:
    """From one member to so many, and back; one after the other `restarts`."""
    make_topic(bootstrap, topic, PARTITIONS)
    with Life(kind, bootstrap, topic, program) as life, watched(bootstrap, topic, PARTITIONS, topic) as commits:
        life.come()
        life.share()
        life.read()
        life.come(most - 1)
        life.share()
        life.read()
        life.there.pop(1).leave()
        life.share()
        life.read()
        for _ in range(len(life.there) if restarts else 0):
            life.there.pop(0).leave()
            life.come()
            life.share()
        life.come(most - len(life.there))
        life.share()
        life.there.pop(0).kill()
        asleep = life.there.pop(0)
        asleep.pause()
        life.write()  # its fetch is answered, while it sleeps
        life.share()  # nobody waits for them longer than they may be silent
        life.read()
        asleep.resume()  # its generation is over, and it finds out
        life.there.append(asleep)
        life.share()
        life.read()
        life.assert_once()
        eventually("all is committed", lambda: commits.have_come_to(life.rounds * EACH))


def follow_a_pattern(
    kind: str, bootstrap: str, prefix: str, program: Sequence[str] = PYTHON, *, later: bool = True
) -> None:
    """Two members share the topics that match, those that are made `later` too."""
    make_topic(bootstrap, f"{prefix}.a", 2)
    if not later:
        make_topic(bootstrap, f"{prefix}.b", 4)
    with Life(kind, bootstrap, f"^{prefix}[.].*", program) as life:
        life.come(2)
        if later:
            share(life.there, [(f"{prefix}.a", 0), (f"{prefix}.a", 1)])
            make_topic(bootstrap, f"{prefix}.b", 4)
        parts = [(f"{prefix}.{letter}", n) for letter, count in (("a", 2), ("b", 4)) for n in range(count)]
        eventually("both topics are shared", lambda: sorted(_held(life.there)) == parts)
        fill(bootstrap, f"{prefix}.b", 4, EACH)
        wanted = {((f"{prefix}.b", n), offset) for n in range(4) for offset in range(EACH)}
        eventually("the new topic is read", lambda: wanted <= {read for one in life.all for read in one.reads})
        life.assert_once()


def grow(kind: str, bootstrap: str, topic: str, program: Sequence[str] = PYTHON) -> None:
    """A topic gets more partitions while two members read it."""
    before, after = 2, 5
    make_topic(bootstrap, topic, before)
    with Life(kind, bootstrap, topic, program) as life:
        life.come(2)
        share(life.there, before)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        [grown] = admin.create_partitions([NewPartitions(topic, after)]).values()
        grown.result(PATIENCE_S)
        share(life.there, after)
        fill(bootstrap, topic, after, EACH)
        wanted = {(partition, offset) for partition in range(after) for offset in range(EACH)}
        eventually("all of it is read", lambda: wanted <= {read for one in life.all for read in one.reads})
        life.assert_once()


def _held(members: Sequence[Member]) -> list:
    return [part for member in members for part in list(member.assigned)]
