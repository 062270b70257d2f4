"""Metrics and log events: the mechanism. Names live in the `telemetry.py` of their package.

A package declares each name once, at import, with `counter`, `gauge`,
`histogram` or `event`; a name declared twice is an error. Logs go to stderr,
one JSON object a line: an event name and fields, never payloads.
"""

import logging
import sys
from collections.abc import Sequence
from typing import Final, NewType, TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Event = NewType("Event", str)
"""The name of something worth a log line."""

REGISTRY: Final = CollectorRegistry()
_EVENTS: Final[dict[str, str]] = {}
_METRICS: Final[dict[str, str]] = {}

SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
BYTES: Final = tuple(float(1 << shift) for shift in range(10, 28, 2))


def event(name: str, description: str) -> Event:
    """Declare a log event: `package.what_happened`."""
    if name in _EVENTS:
        raise ValueError(f"log event declared twice: {name}")
    _EVENTS[name] = description
    return Event(name)


def counter(name: str, description: str, labels: Sequence[str] = ()) -> Counter:
    """Declare a counter; the name ends in `_total`."""
    _declare(name, description)
    return Counter(name, description, labels, registry=REGISTRY)


def gauge(name: str, description: str, labels: Sequence[str] = ()) -> Gauge:
    """Declare a gauge."""
    _declare(name, description)
    return Gauge(name, description, labels, registry=REGISTRY)


def histogram(name: str, description: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
    """Declare a histogram; the name ends in its unit, `_seconds` or `_bytes`."""
    _declare(name, description)
    return Histogram(name, description, labels, buckets=buckets, registry=REGISTRY)


def _declare(name: str, description: str) -> None:
    if name in _METRICS:
        raise ValueError(f"metric declared twice: {name}")
    if not name.startswith("dray_"):
        raise ValueError(f"metric without the dray_ prefix: {name}")
    _METRICS[name] = description


def declared() -> tuple[dict[str, str], dict[str, str]]:
    """All events and all metrics declared by the modules imported so far, with their descriptions."""
    return dict(_EVENTS), dict(_METRICS)


def configure_logging(level: str = "info", stream: TextIO | None = None) -> None:
    """Send structured logs to stderr (or `stream`), JSON objects, one a line."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )


def logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry these fields; JSON on stderr unless configured otherwise."""
    if not structlog.is_configured():
        configure_logging()
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(**fields)
    return bound
