"""What somebody may do: operations on resources, by Kafka's names.

A heap is a Topic of its name, for topics and heaps share their names. To take
messages from a heap changes it, as a group that consumes does, so that needs
Read on the Group of its name besides Read on the Topic: a viewer changes
nothing.

Rights come from the role of a key. Roles allow; a rule that allows or denies
by name comes in front of them when there are such rules.

Invariants
    AC2  Every call of a server has its row in `NEEDS`; what has none is
         refused.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final

from dray.access.errors import Forbidden
from dray.machine.access import KeyRole

THE_CLUSTER: Final = "kafka-cluster"


class Operation(IntEnum):
    """What a principal may do; numbers are Kafka's."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    """What an operation is done to; numbers are Kafka's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


Access = tuple[Operation, Resource]


class Action(Enum):
    """What can be asked of a server that is not Kafka's, by the name that the audit file has."""

    MAKE_HEAP = "heap.make"
    DESCRIBE_HEAP = "heap.describe"
    ALTER_HEAP = "heap.alter"
    DELETE_HEAP = "heap.delete"
    PURGE_HEAP = "heap.purge"
    ENQUEUE = "heap.enqueue"
    POP = "heap.pop"
    SETTLE = "heap.settle"
    PEEK = "heap.peek"
    STATS = "heap.stats"
    BURY = "heap.bury"
    REPLAY = "dlq.replay"
    DROP = "dlq.delete"
    PRODUCE = "topic.produce"
    DESCRIBE_TOPIC = "topic.describe"
    FETCH = "topic.fetch"
    CONSUME = "topic.consume"
    CREATE_KEY = "key.create"
    LIST_KEYS = "key.list"
    REVOKE_KEY = "key.revoke"


_READ: Final[Access] = (Operation.READ, Resource.TOPIC)
_DESCRIBE: Final[Access] = (Operation.DESCRIBE, Resource.TOPIC)
_CONSUME: Final[tuple[Access, ...]] = (_READ, (Operation.READ, Resource.GROUP))
_KEYS: Final[tuple[Access, ...]] = ((Operation.ALTER, Resource.CLUSTER),)
NEEDS: Final[Mapping[Action, tuple[Access, ...]]] = {
    Action.MAKE_HEAP: ((Operation.CREATE, Resource.TOPIC),),
    Action.DESCRIBE_HEAP: (_DESCRIBE,),
    Action.ALTER_HEAP: ((Operation.ALTER, Resource.TOPIC),),
    Action.DELETE_HEAP: ((Operation.DELETE, Resource.TOPIC),),
    Action.PURGE_HEAP: ((Operation.DELETE, Resource.TOPIC),),
    Action.ENQUEUE: ((Operation.WRITE, Resource.TOPIC),),
    Action.POP: _CONSUME,
    Action.SETTLE: _CONSUME,
    Action.PEEK: (_DESCRIBE, _READ),
    Action.STATS: (_DESCRIBE, _READ),
    Action.BURY: ((Operation.ALTER, Resource.TOPIC),),
    Action.REPLAY: ((Operation.ALTER, Resource.TOPIC),),
    Action.DROP: ((Operation.DELETE, Resource.TOPIC),),
    Action.PRODUCE: ((Operation.WRITE, Resource.TOPIC),),
    Action.DESCRIBE_TOPIC: (_DESCRIBE,),
    Action.FETCH: (_READ,),
    Action.CONSUME: _CONSUME,
    Action.CREATE_KEY: _KEYS,
    Action.LIST_KEYS: _KEYS,
    Action.REVOKE_KEY: _KEYS,
}
"""All of these, each on the resource that the caller names (AC2)."""

_IMPLIED: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_VIEWS: Final[Mapping[Resource, frozenset[Operation]]] = {
    Resource.TOPIC: frozenset({Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ}),
    Resource.GROUP: frozenset({Operation.DESCRIBE}),
    Resource.CLUSTER: frozenset({Operation.DESCRIBE}),
}
_OPERATES: Final[Mapping[Resource, frozenset[Operation]]] = {
    Resource.TOPIC: _VIEWS[Resource.TOPIC]
    | {Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS},
    Resource.GROUP: _VIEWS[Resource.GROUP] | {Operation.READ, Operation.DELETE, Operation.ALTER_CONFIGS},
    Resource.CLUSTER: _VIEWS[Resource.CLUSTER] | {Operation.CREATE, Operation.IDEMPOTENT_WRITE},
}
_EVERYTHING: Final[Mapping[Resource, frozenset[Operation]]] = {resource: frozenset(Operation) for resource in Resource}
_ALLOWED: Final[Mapping[KeyRole, Mapping[Resource, frozenset[Operation]]]] = {
    KeyRole.VIEWER: _VIEWS,
    KeyRole.OPERATOR: _OPERATES,
    KeyRole.ADMIN: _EVERYTHING,
}


class Rights:
    """What one caller may do. `name` is the resource's: roles do not look at it, rules by name do."""

    __slots__ = ("_allowed",)

    def __init__(self, role: KeyRole) -> None:
        self._allowed = _ALLOWED[role]

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        allowed = self._allowed.get(resource, frozenset())
        return operation in allowed or not _IMPLIED.get(operation, frozenset()).isdisjoint(allowed)

    def check(self, action: Action, name: str) -> None:
        """`Forbidden` unless all that an action needs is allowed; it is the same whether the name exists or not."""
        for operation, resource in NEEDS[action]:
            named = THE_CLUSTER if resource is Resource.CLUSTER else name
            if not self.may(operation, resource, named):
                raise Forbidden(f"this key may not do that: it needs {operation.name} on the {resource.name.lower()}")


RIGHTS: Final[Mapping[KeyRole, Rights]] = {role: Rights(role) for role in KeyRole}
EVERYTHING: Final = RIGHTS[KeyRole.ADMIN]
