"""A cluster grows: more data domains, and nothing that is there moves."""

import pytest

from dray.machine import checkpoint
from dray.machine.domains import AddDomains
from dray.machine.names import TopicId, domain_of
from dray.machine.sessions import SessionKind
from dray.machine.topics import CreateTopic
from dray.machine.verdict import DONE, Refused, Why
from tests.machine.scribe import Tape


def tool(tape: Tape):
    return tape.open("operator", kind=SessionKind.TOOL)


def create(tape: Tape, name: str, partitions: int = 8) -> set[int]:
    """The domains of the partitions of a new topic."""
    topic_id = TopicId(name.encode().ljust(16, b"-"))
    tool(tape).send(CreateTopic(topic_id=topic_id, name=name, partitions=partitions))
    return {domain_of(stream) for stream in tape.machine.topics.all[topic_id].streams}


@pytest.mark.parametrize(("born", "holding"), [(1, [0, 1, 2, 3, 4]), (2, [1, 2, 3, 4])])
def test_new_partitions_go_to_all_domains_and_groups_stay_with_those_of_the_birth(
    born: int, holding: list[int]
) -> None:
    """M13: what was born as the only domain keeps what it has."""
    tape = Tape(domains=born, version=2)
    head = tape.machine.head
    assert create(tape, "before") == ({0} if born == 1 else {1, 2})
    for domains in (3, 4):
        assert tool(tape).send(AddDomains(domains=domains)).verdicts == [DONE]
        assert (head.domains, head.group_domains) == (domains, born)
    assert list(head.data_domains) == holding
    assert create(tape, "after") == {1, 2, 3, 4}
    loaded = checkpoint.load(checkpoint.dump(tape.machine))
    assert (loaded.head.domains, loaded.head.group_domains) == (4, born)
    assert checkpoint.fingerprint(loaded) == checkpoint.fingerprint(tape.machine)


def test_domains_never_become_fewer_and_the_same_number_again_is_no_error() -> None:
    """M13"""
    tape = Tape(domains=4, version=2)
    assert tool(tape).send(AddDomains(domains=4)).verdicts == [DONE]
    (verdict,) = tool(tape).send(AddDomains(domains=3)).verdicts
    assert isinstance(verdict, Refused)
    assert (tape.machine.head.domains, tape.machine.head.group_domains) == (4, 4)


def test_domains_are_not_added_while_a_broker_is_live() -> None:
    """M14"""
    tape = Tape(domains=2, version=2)
    tape.open("b1")
    before = checkpoint.fingerprint(tape.machine)
    writer = tool(tape)
    (verdict,) = writer.send(AddDomains(domains=3)).verdicts
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.LIVE
    assert tape.machine.head.domains == 2
    assert before != checkpoint.fingerprint(tape.machine), "the tool's own session"


def test_only_the_catalog_grows_and_only_under_rules_that_know_it() -> None:
    tape = Tape(domain=1, domains=2, version=2)
    (verdict,) = tool(tape).send(AddDomains(domains=3)).verdicts
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.FOREIGN
