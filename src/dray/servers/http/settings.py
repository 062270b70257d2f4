"""Settings of the HTTP port."""

from dray.config import Section


class HttpSettings(Section):
    """Health and metrics over HTTP."""

    listen: str = "127.0.0.1:8080"
    """HOST:PORT to serve on; port 0 takes a free one."""
