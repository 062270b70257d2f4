"""Configs of groups, kept with the catalog."""

from dray.machine import checkpoint
from dray.machine.group_configs import MAX_CONFIGS, AlterGroup
from dray.machine.verdict import DONE, Refused, Why

from .scribe import Tape


def test_configs_of_a_group_are_set_changed_and_removed():
    tape = Tape(version=2)
    writer = tape.open()
    assert writer.do(AlterGroup(group="g", set={"b": "2", "a": "1"})) == DONE
    assert writer.do(AlterGroup(group="g", set={"a": "3"}, remove=("b",))) == DONE
    assert tape.machine.group_configs.of("g") == {"a": "3"}
    loaded = checkpoint.load(checkpoint.dump(tape.machine))
    assert loaded.group_configs.all == {"g": {"a": "3"}}
    assert list(loaded.group_configs.show("")) == [("/dray/v1/groups/g/config", {"config": {"a": "3"}})]
    assert writer.do(AlterGroup(group="g", remove=("a",))) == DONE
    assert tape.machine.group_configs.all == {}


def test_only_the_catalog_has_them_and_there_are_not_too_many():
    writer = Tape(domain=1, domains=2, version=2).open()
    verdict = writer.do(AlterGroup(group="g", set={"a": "1"}))
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.FOREIGN
    writer = Tape(version=2).open()
    assert writer.do(AlterGroup(group="g", set={str(number): "" for number in range(MAX_CONFIGS)})) == DONE
    verdict = writer.do(AlterGroup(group="g", set={"x": ""}))
    assert isinstance(verdict, Refused)
    assert verdict.why is Why.LIMIT
