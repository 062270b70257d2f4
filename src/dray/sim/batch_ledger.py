"""What the clients of several heaps were told of their batches, held against what was delivered.

torn-batch     some messages of a batch are delivered, and others never are
lost-batch     a batch that was taken is not delivered
phantom-batch  a message of a batch of which its producer was told, and believed, that nothing was taken
phantom-pop    a message that nobody sent, or not to this heap
"""

from dataclasses import dataclass, field

from dray.sim.world import World


@dataclass(slots=True)
class _SentBatch:
    keys: dict[str, str]
    """Of each message; and its heap."""
    taken: bool = False
    refused: bool = False
    delivered: set[str] = field(default_factory=set)


class BatchLedger:
    """Everything that is known of batches from outside."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._batches: dict[str, _SentBatch] = {}

    def asks(self, batch: str, keys: dict[str, str]) -> None:
        self._batches[batch] = _SentBatch(keys)

    def took(self, batch: str) -> None:
        self._batches[batch].taken = True

    def refused(self, batch: str) -> None:
        """Its producer was told that nothing happened, and does not try again."""
        sent = self._batches[batch]
        sent.refused = True
        self._world.check(not sent.delivered, "phantom-batch", batch=batch)

    def delivered(self, heap: str, payload: bytes) -> None:
        key = payload.decode(errors="replace").partition(":")[0]
        sent = self._batches.get(key.partition("/")[0])
        self._world.check(sent is not None and sent.keys.get(key) == heap, "phantom-pop", key=key, heap=heap)
        assert sent is not None
        self._world.check(not sent.refused, "phantom-batch", key=key)
        sent.delivered.add(key)

    def judge(self) -> tuple[int, int]:
        """When everything was delivered that there is: how many batches were taken, and how many were not."""
        there = 0
        for name, sent in self._batches.items():
            missing = sorted(sent.keys.keys() - sent.delivered)
            whole = not missing or not sent.delivered
            self._world.check(whole, "torn-batch", batch=name, missing=missing)
            self._world.check(not missing or not sent.taken, "lost-batch", batch=name)
            there += not missing
        return there, len(self._batches) - there
