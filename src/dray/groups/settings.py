"""Settings of groups: how long members may be silent, and how long others wait for them."""

from datetime import timedelta
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from dray.config import Section
from dray.groups.configs import ASSIGNMENT, HEARTBEAT, SESSION, Bounds
from dray.groups.consumer import ConsumerLimits
from dray.groups.targets import TargetPace

_MILLISECOND: Final = timedelta(milliseconds=1)


class GroupSettings(Section):
    """How members of consumer groups find together."""

    initial_delay: timedelta = timedelta(seconds=3)
    """Let the first members of an empty group wait this long for others. 0 in `drayd dev`."""

    min_session: timedelta = timedelta(seconds=6)
    """Refuse a classic member that wants to be missed sooner than this."""

    max_session: timedelta = timedelta(minutes=30)
    """Refuse a classic member that wants to be missed later than this."""

    max_size: int = Field(default=10_000, ge=1, le=100_000)
    """Let a classic group have at most this many members."""

    step_in: timedelta = timedelta(seconds=1)
    """Do what the broker of a group has left undone this much later, and so on for each broker in its order."""

    consumer_session: timedelta = timedelta(seconds=45)
    """Remove a member of a consumer group (the new protocol) after this long without a heartbeat."""

    consumer_heartbeat: timedelta = timedelta(seconds=5)
    """Tell members of consumer groups to send a heartbeat this often."""

    consumer_unsettled_heartbeat: timedelta = timedelta(seconds=1)
    """And this often while they wait for partitions of others. 0: as often as always."""

    consumer_assignment_interval: timedelta = timedelta(seconds=1)
    """Give a consumer group a new target at most this often."""

    consumer_assignors: tuple[Literal["uniform", "range"], ...] = ("uniform", "range")
    """What members of consumer groups may ask for; the first is taken when they ask for none."""

    consumer_join_wait: timedelta = timedelta(milliseconds=500)
    """Let a join wait this long for a target, before it is answered with an empty assignment."""

    regex_refresh: timedelta = timedelta(seconds=10)
    """Look which topics the patterns of a group match at most this often, while topics come and go."""

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.min_session > self.max_session:
            raise ValueError("groups.min_session must be at most groups.max_session")
        return self

    @model_validator(mode="after")
    def _consumers_beat_in_time(self) -> Self:
        if 3 * self.consumer_heartbeat > self.consumer_session:
            raise ValueError("groups.consumer_heartbeat must be at most a third of groups.consumer_session")
        if not self.consumer_assignors:
            raise ValueError("groups.consumer_assignors must name one")
        return self

    @property
    def initial_delay_ms(self) -> int:
        return self.initial_delay // _MILLISECOND

    @property
    def step_in_ms(self) -> int:
        return self.step_in // _MILLISECOND

    def takes_session(self, session_ms: int) -> bool:
        """Whether a classic member may be silent so long."""
        return self.min_session // _MILLISECOND <= session_ms <= self.max_session // _MILLISECOND

    @property
    def consumers(self) -> ConsumerLimits:
        """What members of consumer groups are asked and granted."""
        return ConsumerLimits(
            assignors=self.consumer_assignors,
            max_size=self.max_size,
            join_wait_ms=self.consumer_join_wait // _MILLISECOND,
            unsettled_ms=self.consumer_unsettled_heartbeat // _MILLISECOND,
        )

    @property
    def targets(self) -> TargetPace:
        """How often consumer groups are tended."""
        return TargetPace(
            assignment_ms=self.consumer_assignment_interval // _MILLISECOND,
            regex_ms=self.regex_refresh // _MILLISECOND,
        )

    @property
    def group_configs(self) -> dict[str, Bounds]:
        """What may be changed for single groups; the bounds are Kafka's, and never tighter than the default here."""
        return {
            SESSION: _around(self.consumer_session, 45_000, 60_000),
            HEARTBEAT: _around(self.consumer_heartbeat, 5_000, 15_000),
            ASSIGNMENT: _around(self.consumer_assignment_interval, 0, 15_000),
        }


def _around(default: timedelta, low_ms: int, high_ms: int) -> Bounds:
    default_ms = default // _MILLISECOND
    return Bounds(default=default_ms, low=min(low_ms, default_ms), high=max(high_ms, default_ms))
