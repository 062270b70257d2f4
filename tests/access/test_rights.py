"""What roles may do, and that every action has its row."""

import pytest

from dray.access.authorizer import EVERYTHING, NEEDS, RIGHTS, Action, Operation, Resource
from dray.access.errors import Forbidden
from dray.access.principals import Principal, parse_principal
from dray.machine.access import KeyRole

READS = {
    Action.DESCRIBE_HEAP, Action.PEEK, Action.STATS, Action.DESCRIBE_TOPIC, Action.FETCH,
}  # fmt: skip
KEYS = {Action.CREATE_KEY, Action.LIST_KEYS, Action.REVOKE_KEY}
MAY = {
    KeyRole.VIEWER: READS,
    KeyRole.OPERATOR: set(Action) - KEYS,
    KeyRole.ADMIN: set(Action),
}
"""Said once more, apart from the code: a viewer changes nothing, an operator gives nobody rights."""


def test_every_action_has_its_row():
    """AC2"""
    assert set(NEEDS) == set(Action)
    assert all(NEEDS.values())


@pytest.mark.parametrize("role", KeyRole)
@pytest.mark.parametrize("action", Action)
def test_a_role_may_what_it_is_for_and_nothing_else(role, action):
    """D-250, D-225"""
    if action in MAY[role]:
        RIGHTS[role].check(action, "orders")
    else:
        with pytest.raises(Forbidden) as refusal:
            RIGHTS[role].check(action, "orders")
        assert "orders" not in str(refusal.value), "the same whether it exists or not"


def test_what_changes_something_is_no_viewers():
    """to pop is to change: heaps §6 and ADR-0141"""
    for action in (Action.POP, Action.SETTLE, Action.CONSUME, Action.PURGE_HEAP, Action.ENQUEUE):
        with pytest.raises(Forbidden):
            RIGHTS[KeyRole.VIEWER].check(action, "jobs")


def test_describe_follows_from_what_cannot_be_done_without_it():
    rights = RIGHTS[KeyRole.OPERATOR]
    assert rights.may(Operation.DESCRIBE, Resource.TOPIC, "t")
    assert not rights.may(Operation.ALTER, Resource.CLUSTER, "kafka-cluster")
    assert not rights.may(Operation.CLUSTER_ACTION, Resource.CLUSTER, "kafka-cluster")
    assert not rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, "t")
    assert all(EVERYTHING.may(operation, resource, "x") for operation in Operation for resource in Resource)


def test_a_principal_is_written_and_read_alike():
    assert parse_principal("User:alice") == parse_principal("alice") == Principal("alice")
    assert str(Principal("alice")) == "User:alice"
