"""Settings of who is let in."""

from datetime import timedelta
from typing import Literal

from pydantic import Field

from dray.config import Section


class AccessSettings(Section):
    """Who may use the HTTP and gRPC ports. The Kafka port asks nobody yet."""

    required: Literal["auto", "on", "off"] = "auto"
    """Whether a key is needed. auto: unless every listener of this broker is on loopback and no key was ever made.
    on: always; make the first key with `drayd admin key create`. off: never, whoever can connect may do everything."""

    argon2_parallel: int = Field(default=2, ge=1, le=16)
    """How many keys are checked at a time, each on a core and with 19 MiB. More: a fleet of clients that starts at
    once gets in sooner, and takes more cores from those who are in."""

    streams_per_key: int = Field(default=64, ge=1, le=10_000)
    """How many streams one key may have open on one broker."""

    touch_interval: timedelta = Field(default=timedelta(seconds=60), ge=timedelta(seconds=1))
    """How often it is written down when keys were last used. Longer: fewer entries in the log."""
