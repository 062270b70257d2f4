"""Java, franz-go and kafkajs in groups: members come, go, are restarted, die and fall asleep."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.testing import broker
from tests.clients.living import QUICK, follow_a_pattern, grow, live
from tools.peers.golang import go_program
from tools.peers.java import command_of
from tools.peers.node import node_command

pytestmark = pytest.mark.peers
HERE = Path(__file__).parents[1]
_names = itertools.count()

GO = [
    *(f"classic/{balancer}" for balancer in ("range", "roundrobin", "sticky", "cooperative-sticky")),
    "consumer/range", "consumer/sticky",
]  # fmt: skip
JAVA = [
    *(f"classic/{name}Assignor" for name in ("Range", "RoundRobin", "Sticky", "CooperativeSticky")),
    "consumer/uniform", "consumer/range",
]  # fmt: skip
PROGRAMS = {
    "franz-go": lambda: [str(go_program(HERE / "go" / "member.go"))],
    "java": lambda: command_of(HERE / "java" / "Member.java", heap="96m"),
    "kafkajs": lambda: node_command(HERE / "js" / "member.js"),
}
KINDS = [
    *(("franz-go", kind) for kind in GO), *(("java", kind) for kind in JAVA), ("kafkajs", "roundrobin"),
]  # fmt: skip
SHORT = [one for one in KINDS if one[0] != "java" or one[1] in ("classic/RangeAssignor", "consumer/uniform")] + [
    ("java", "classic/CooperativeStickyAssignor")
]
"""Each start of a Java member costs seconds: the others have their turn in the long form."""
FIVE = {("franz-go", "classic/cooperative-sticky"), ("franz-go", "consumer/sticky"), ("kafkajs", "roundrobin")}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(**QUICK) as running:
        yield running.bootstrap


@pytest.fixture
def name() -> str:
    return f"lives-{next(_names)}"


@pytest.mark.parametrize(("client", "kind"), SHORT)
def test_each_record_is_committed_once_whatever_happens_to_members(
    bootstrap: str, name: str, client: str, kind: str
) -> None:
    """R-166, R-172, R-175, R-177, R-179, R-190, T18."""
    most = 5 if (client, kind) in FIVE else 3
    live(kind, bootstrap, name, most, PROGRAMS[client](), restarts=client != "java")


@pytest.mark.long
@pytest.mark.parametrize("most", [3, 4, 5])
@pytest.mark.parametrize(("client", "kind"), KINDS)
def test_groups_of_every_size_live_again_and_again(
    bootstrap: str, name: str, client: str, kind: str, most: int
) -> None:
    """R-166, R-172, R-175, R-177, R-179, R-190, T18."""
    for number in range(3):
        live(kind, bootstrap, f"{name}-{number}", most, PROGRAMS[client]())


PROTOCOLS = [
    ("franz-go", "classic/range"), ("franz-go", "consumer/range"), ("java", "classic/RangeAssignor"),
    ("java", "consumer/uniform"), ("kafkajs", "roundrobin"),
]  # fmt: skip


@pytest.mark.parametrize(("client", "kind"), PROTOCOLS)
def test_a_pattern_finds_its_topics(bootstrap: str, name: str, client: str, kind: str) -> None:
    """R-183: kafkajs looks for them once, the others again and again."""
    follow_a_pattern(kind, bootstrap, name, PROGRAMS[client](), later=client != "kafkajs")


@pytest.mark.parametrize(("client", "kind"), PROTOCOLS)
def test_partitions_that_are_added_are_shared_too(bootstrap: str, name: str, client: str, kind: str) -> None:
    """R-183."""
    grow(kind, bootstrap, name, PROGRAMS[client]())
