"""Settings of consumers that settle records one by one."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from dray.config import Section


class ConsumeSettings(Section):
    """How records are handed out to consumers that acknowledge them one by one, over HTTP."""

    lease: timedelta = timedelta(seconds=30)
    """Hand a record out again when it was not settled for this long. A request may ask for another time."""

    max_retries: Annotated[int, Field(ge=0, le=10_000)] = 10
    """Move a record to `dlq.TOPIC` when it has failed more often than this."""

    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Records of one partition that a group may hold unsettled. More: slow consumers keep more of them."""

    backoff: timedelta = timedelta(seconds=1)
    """Hand a record out again after this long when it has failed once; each further failure doubles it."""

    backoff_max: timedelta = timedelta(minutes=5)
    """The longest such pause."""

    @model_validator(mode="after")
    def _times_make_sense(self) -> Self:
        if not timedelta(seconds=1) <= self.lease <= timedelta(hours=12):
            raise ValueError("consume.lease must be from 1s to 12h")
        if self.backoff < timedelta(0) or self.backoff_max < self.backoff:
            raise ValueError("consume.backoff must be from 0s to consume.backoff_max")
        return self

    def backoff_s(self, attempts: int) -> float:
        """How long a record rests that has failed so often."""
        return min(self.backoff.total_seconds() * 2.0 ** min(attempts - 1, 30), self.backoff_max.total_seconds())
