"""Mistakes about versions."""

from collections.abc import Callable
from typing import Final

from dray.buffers import Buffer
from dray.machine.command import Command, Decoders
from dray.machine.head import Activate
from dray.machine.machine import Machine
from dray.machine.packing import Writer as Packing
from dray.machine.step import Applied, Step
from dray.machine.verdict import DONE, Verdict
from dray.replica.writer import Writer, _Flight

_APPLY: Final = Machine.apply
_SETTLE: Final = Writer._settle
_ANY_VERSION: Final = 255


def activate_at_once(self: Machine, step: Step, command: Activate) -> Verdict:
    """The operator knows best: nobody asks which builds are alive."""
    self.head.version = max(self.head.version, command.version)
    step.catalog_changed = True
    return DONE


def readers_of_all_versions(self: Decoders, version: int) -> dict[int, Callable[[Buffer], Command]]:
    """A build takes every command that it knows, whichever version is active."""
    self._by_version[version] = {number: kind.reader(max(version, kind.since)) for number, kind in self._kinds.items()}
    return self._by_version[version]


def dump_every_noun(machine: Machine, out: Packing) -> None:
    """A checkpoint holds every noun that the build knows, whichever version is active."""
    head, timeline = machine.head, machine.timeline
    out.values([
        machine.position, machine.digest, head.version, head.cluster_id, head.log_id,
        head.domain, head.domains, head.generation, timeline.time_ms, timeline.sure_ms, timeline.pause_end_ms,
    ])  # fmt: skip
    out.values([len(machine.nouns)])
    for noun in machine.nouns:
        section = Packing()
        noun.dump(section, head.version)
        out.values([noun.name])
        out.section(section)


def apply_whatever(self: Machine, position: int, entry: bytes, want_verdicts: bool = False) -> Applied:
    """A build goes on under rules that it does not know."""
    vars(self)["supported"] = _ANY_VERSION
    try:
        return _APPLY(self, position, entry, want_verdicts)
    finally:
        del vars(self)["supported"]


async def settle_its_newest(self: Writer, flight: _Flight) -> Applied:
    """A writer stamps the newest version that it knows, not the active one."""
    if not flight.opens:
        flight.entry = bytes([self._host.machine.supported]) + flight.entry[1:]
    return await _SETTLE(self, flight)
