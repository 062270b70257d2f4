"""Settings of a replica: how long its session lives."""

from datetime import timedelta
from typing import Self

from pydantic import model_validator

from dray.config import Section
from dray.replica.writer import SHORTEST_TTL_MS


class SessionSettings(Section):
    """How long a silent process keeps its place in the cluster."""

    ttl: timedelta = timedelta(seconds=15)
    """Expire a session after this long without a sign of life. Shorter: faster failover, more false alarms."""

    keepalive: timedelta = timedelta(seconds=5)
    """Append a keep-alive when nothing else was appended for this long."""

    @model_validator(mode="after")
    def _keepalives_outpace_expiry(self) -> Self:
        if self.ttl < timedelta(milliseconds=SHORTEST_TTL_MS):
            raise ValueError(f"session.ttl must be at least {SHORTEST_TTL_MS // 1_000}s")
        # One lost keep-alive must not cost the session: three fit into a ttl.
        if 3 * self.keepalive > self.ttl:
            raise ValueError("session.keepalive must be at most a third of session.ttl")
        return self
