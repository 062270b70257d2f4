"""The holds of a cluster, for an operator: who keeps dead objects in the store, and until when."""

from dataclasses import dataclass

from dray.errors import NotFound
from dray.machine.holds import LetGo
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster, reach


class NoSuchPin(NotFound):
    """Nothing is held under this name, or its time is over."""

    advice = "list them with `drayd admin pins ls`"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPin:
    """A hold, or the pin of a session, in one domain."""

    domain: int
    pin: str
    position: int
    """What died at or behind it is kept."""
    made_ms: int | None
    until_ms: int | None
    """None: for as long as its session lives."""
    seconds_left: float | None
    session: int | None
    shared: bool


async def list_pins(place: DirectoryOrCluster, effects: Effects) -> list[HeldPin]:
    """Everything that keeps objects, the oldest first."""
    found = []
    async with reach(place, effects) as reached:
        for domain in reached.domains(effects):
            machine = await reached.machine(domain, effects)
            found += [
                HeldPin(
                    domain=domain, pin=pin, position=held.position, made_ms=held.made_ms, until_ms=held.until_ms,
                    seconds_left=(held.until_ms - machine.time_ms) / 1000, session=None, shared=held.shared,
                )
                for pin, held in machine.holds.current().items()
            ]  # fmt: skip
            found += [
                HeldPin(
                    domain=domain, pin=pin, position=position, made_ms=None, until_ms=None, seconds_left=None,
                    session=session, shared=False,
                )
                for (session, pin), position in machine.objects.pins.items()
            ]  # fmt: skip
    return sorted(found, key=lambda one: (one.domain, one.position, one.pin))


async def drop_pin(place: DirectoryOrCluster, pin: str, effects: Effects) -> list[int]:
    """End a hold in every domain that has it; the numbers of those. Who still reads by it may miss objects.

    Raises:
        NoSuchPin: no domain has it.
    """
    dropped = []
    async with reach(place, effects) as reached:
        for domain in reached.domains(effects):
            async with reached.following(domain, "operator", effects) as replica:
                if pin in replica.machine.holds.current():
                    await replica.propose(LetGo(pin=pin))
                    dropped.append(domain)
                    await replica.close_session()
    if not dropped:
        raise NoSuchPin("no such pin", pin=pin)
    return dropped
