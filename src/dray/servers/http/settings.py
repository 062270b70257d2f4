"""Settings of the HTTP port."""

from datetime import timedelta
from typing import Self

from pydantic import model_validator

from dray.config import Section, Size


class HttpSettings(Section):
    """The API, a page for people, health and metrics, over HTTP."""

    listen: str = "127.0.0.1:7433"
    """HOST:PORT to serve on, or a port of this machine's loopback; port 0 takes a free one."""

    advertise: str | None = None
    """HOST:PORT at which clients and other brokers reach this one. Not set: where it listens."""

    max_body: Size = Size("16MiB")
    """Refuse requests of the API with a larger body."""

    body_timeout: timedelta = timedelta(seconds=30)
    """Refuse a request whose body has not come after this long."""

    body_budget: Size = Size("128MiB")
    """Bytes of bodies that may be on their way in at once; beyond it clients are told to try again."""

    @model_validator(mode="after")
    def _bodies_fit(self) -> Self:
        if not 0 < self.max_body <= self.body_budget:
            raise ValueError("http.max_body must be from 1B to http.body_budget")
        if self.body_timeout <= timedelta(0):
            raise ValueError("http.body_timeout must be above 0s")
        return self
