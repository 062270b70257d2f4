"""Mistakes in rules of the machine that seldom matter."""

from hashlib import blake2b
from typing import Final

from dray.machine import checkpoint
from dray.machine.machine import _LINK, Machine
from dray.machine.names import SessionId
from dray.machine.packing import Reader, Row
from dray.machine.sessions import Expire, Sessions
from dray.machine.step import EndReason, Step
from dray.machine.verdict import DONE, Verdict, Why, refused
from dray.sim.planted import Scenario, replaced
from dray.sim.world import World

_LOAD: Final = checkpoint._load_sections


def newest_clock(self: Sessions, besides: SessionId) -> int | None:
    """A claim is cut to an hour beyond the other session that is furthest ahead."""
    return max((other.clock_ms for other in self.live.values() if other.id != besides), default=None)


def chain_entries_alone(self: Machine, step: Step, entry_hash: bytes) -> None:
    """The digest covers what was written, and not what was made of it."""
    head = _LINK.pack(self.digest, step.position) + entry_hash
    self.digest = int.from_bytes(blake2b(head, digest_size=8).digest(), "little")


def expire_whoever(self: Sessions, step: Step, command: Expire) -> Verdict:
    """A session is expired though it has spoken meanwhile."""
    if command.session == step.session or command.session not in self.live:
        return refused(Why.NOT_FOUND, "the session is not live")
    self.end(step, command.session, EndReason.EXPIRED)
    return DONE


def load_without_pause(machine: Machine, row: Row, source: Reader) -> None:
    """Whoever begins from a checkpoint does not know that time is paused."""
    _LOAD(machine, row, source)
    machine.timeline.pause_end_ms = 0


def pause_forgotten(scenario: Scenario) -> Scenario:
    """The mistake is in a function, so its module is changed."""

    async def run(world: World) -> None:
        with replaced(checkpoint, "_load_sections", load_without_pause):
            await scenario(world)

    return run
