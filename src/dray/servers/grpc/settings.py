"""Settings of the gRPC port."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from dray.config import Section, Size


class GrpcSettings(Section):
    """Heaps, over gRPC."""

    listen: str = "127.0.0.1:7432"
    """HOST:PORT to serve on, or a port of this machine's loopback; port 0 takes a free one. Empty: heaps are not
    served over gRPC, and a broker starts faster and smaller."""

    advertise: str | None = None
    """HOST:PORT that clients are told to connect to. Not set: where this broker listens."""

    max_message: Size = Size("16MiB")
    """The largest message that is taken. A batch is refused above 8 MiB in any case."""

    max_streams: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Streams that are open at a time, of all clients; one more is refused. Each holds at most 8 MiB of messages that
    its client has not read."""

    keepalive: Annotated[timedelta, Field(ge=timedelta(seconds=1))] = timedelta(seconds=30)
    """Ask a connection this often whether its client is still there. One that does not answer for 10 s is closed, and
    what was on its way to it goes back to its heap."""
