"""Known mistakes, put into the product for one run, so that the simulator can be held to finding them.

A bug is a context manager that replaces a method of a class and puts the
right one back. Nothing of this is in the product: there is no switch there.
The mistakes lie in modules by what they break; the scenario that finds one
names it in its own `PLANTED`.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from dray.sim.world import World

Scenario = Callable[[World], Coroutine[object, object, None]]


@contextmanager
def replaced(owner: type | ModuleType, name: str, value: object) -> Iterator[None]:
    """Another method in place of one, or another function of a module, for as long as the block runs."""
    kept = owner.__dict__.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if kept is None:
            delattr(owner, name)
        else:
            setattr(owner, name, kept)


def planted(scenario: Scenario, *changes: tuple[type | ModuleType, str, object]) -> Scenario:
    """The scenario with one mistake in it."""

    async def run(world: World) -> None:
        with ExitStack() as stack:
            for owner, name, value in changes:
                stack.enter_context(replaced(owner, name, value))
            await scenario(world)

    return run
