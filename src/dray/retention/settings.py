"""Settings of retention: how often somebody looks, and how long things are kept."""

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator

from dray.config import Section

_SECOND = timedelta(seconds=1)
_CENTURY = timedelta(days=36_500)


class RetentionSettings(Section):
    """What makes the disk not grow for ever. Topics say for themselves how long records are kept."""

    interval: timedelta = timedelta(seconds=30)
    """Look this often for records past their topic's retention and for objects that may be deleted."""

    grace: timedelta = timedelta(minutes=10)
    """Keep an object this long after its last record went, for readers that are still on their way to it."""

    deletes_in_flight: int = Field(default=16, ge=1, le=256)
    """Delete at most this many objects at a time."""

    sweep_interval: timedelta = timedelta(hours=1)
    """Look this often for objects that ended processes left behind."""

    orphan_ttl: timedelta = timedelta(hours=24)
    """Keep what an ended process left behind this long after its end."""

    expiry_interval: timedelta = timedelta(minutes=10)
    """Look this often for idle producers and old committed offsets."""

    producers_expiry: timedelta = timedelta(hours=24)
    """Forget a producer's sequence this long after its last batch."""

    offsets_retention: timedelta = timedelta(days=7)
    """Forget a committed offset this long after its commit, unless the commit said otherwise."""

    @model_validator(mode="after")
    def _times_make_sense(self) -> Self:
        for name in ("interval", "sweep_interval", "expiry_interval"):
            if not _SECOND <= getattr(self, name) <= timedelta(days=1):
                raise ValueError(f"retention.{name} must be from 1 s to 1 day")
        for name in ("grace", "orphan_ttl", "producers_expiry", "offsets_retention"):
            if not timedelta(0) <= getattr(self, name) <= _CENTURY:
                raise ValueError(f"retention.{name} must be from 0 to 100 years")
        return self


def millis(time: timedelta) -> int:
    """A duration as commands carry it."""
    return time // timedelta(milliseconds=1)
