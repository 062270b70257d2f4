"""Settings of the HTTP port."""

from dray.config import Section


class HttpSettings(Section):
    """A page for people, health and metrics, over HTTP."""

    listen: str = "127.0.0.1:7433"
    """HOST:PORT to serve on, or a port of this machine's loopback; port 0 takes a free one."""
