"""How work of many steps on the event loop lets others have it now and then.

    pace = Pace()
    for one in many:
        ...
        if pace.is_due():
            await asyncio.sleep(0)

Steps are counted, not timed, so that the simulator sees the same pauses in
every run.
"""

from typing import Final

SLICE: Final = 500
"""Steps between two pauses; a step is a few microseconds."""


class Pace:
    """Counts the steps of one piece of work."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SLICE

    def is_due(self, steps: int = 1) -> bool:
        """Whether so many more steps make a pause due; then the counting begins anew."""
        self._left -= steps
        if self._left > 0:
            return False
        self._left = SLICE
        return True
