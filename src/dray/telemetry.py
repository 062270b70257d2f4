"""Metrics and log events: the mechanism. Names live in the `telemetry.py` of their package.

A package declares each name once, at import, with `counter`, `gauge`,
`histogram` or `event`; a name declared twice is an error. Logs go to stderr:
an event name and fields, never payloads. A program gets one JSON object a
line, a person at a terminal the sentence that the event was declared with.
The last warnings are kept for whoever asks how things are.
"""

import json
import logging
import math
import sys
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, NewType, Self, TextIO, TypeAlias, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.samples import Sample
from structlog.typing import EventDict, Processor, WrappedLogger

Event = NewType("Event", str)
"""The name of something worth a log line."""

Form: TypeAlias = Literal["auto", "text", "json"]
"""How log lines look; `auto` is text on a terminal and JSON elsewhere."""

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)  # CPU, memory, open files and start of this process, under their usual names
_EVENTS: Final[dict[str, str]] = {}
_METRICS: "Final[dict[str, Metric]]" = {}

SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
BYTES: Final = tuple(float(1 << shift) for shift in range(10, 28, 2))

_COUNTED_TOGETHER: Final = 256
KEPT_WARNINGS: Final = 50
_WARNINGS: "Final[deque[Warned]]" = deque(maxlen=KEPT_WARNINGS)
_GRAVE: Final = frozenset({"warning", "error", "critical"})
_WRITING: Final = threading.Lock()
_APART: Final = frozenset({"timestamp", "level", "event", "local", "exception"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric as it was declared."""

    kind: Literal["counter", "gauge", "histogram"]
    description: str
    labels: tuple[str, ...]
    alias: bool = False
    """Under a name that tools of others look for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A log line of weight, as it is kept for a look."""

    at: str
    level: str
    sentence: str
    facts: str


def last_warnings() -> list[Warned]:
    """The newest warnings and errors of this process, oldest first."""
    return list(_WARNINGS)


def event(name: str, description: str) -> Event:
    """Declare a log event: `package.what_happened`."""
    if name in _EVENTS:
        raise ValueError(f"log event declared twice: {name}")
    _EVENTS[name] = description
    return Event(name)


def counter(name: str, description: str, labels: Sequence[str] = ()) -> Counter:
    """Declare a counter; the name ends in `_total`."""
    _declare(name, Metric(kind="counter", description=description, labels=tuple(labels)))
    return _KnownCounter(name, description, labels, registry=REGISTRY)


def gauge(name: str, description: str, labels: Sequence[str] = ()) -> Gauge:
    """Declare a gauge."""
    _declare(name, Metric(kind="gauge", description=description, labels=tuple(labels)))
    return Gauge(name, description, labels, registry=REGISTRY)


def alias(name: str, description: str, labels: Sequence[str] = ()) -> Gauge:
    """Declare a gauge under a name that tools of others look for, beside one of ours."""
    _declare(name, Metric(kind="gauge", description=description, labels=tuple(labels), alias=True))
    return Gauge(name, description, labels, registry=REGISTRY)


def histogram(name: str, description: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
    """Declare a histogram; the name ends in its unit, `_seconds` or `_bytes`, or in what it counts by."""
    _declare(name, Metric(kind="histogram", description=description, labels=tuple(labels)))
    return _KnownHistogram(name, description, labels, buckets=buckets, registry=REGISTRY)


class _Known(MetricWrapperBase):
    """Finds the child of labels that were seen before without a lock: requests ask for the same few again and again."""

    def labels(self, *values: object, **named: object) -> Self:
        if values and not self._labelvalues:
            known = self._metrics.get(values)  # type: ignore[arg-type]  # what is no text is not found
            if known is not None:
                return cast("Self", known)
        return super().labels(*values, **named)


class _KnownCounter(_Known, Counter):
    pass


class _KnownHistogram(_Known, Histogram):
    """Amounts are kept as they come and counted together: finding the bucket of each costs more than all else of it."""

    _new: list[float]

    def _metric_init(self) -> None:
        super()._metric_init()
        self._new = []
        self._counting = threading.Lock()

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        if exemplar:
            super().observe(amount, exemplar)
            return
        new = self._new
        new.append(amount)  # from any thread: a list takes one at a time
        if len(new) >= _COUNTED_TOGETHER:
            self._count()

    def _count(self) -> None:
        with self._counting:
            taken = self._new[:]
            del self._new[: len(taken)]  # what comes meanwhile is behind these
            taken.sort()
            below = 0
            for bound, bucket in zip(self._upper_bounds, self._buckets, strict=True):
                upto = bisect_right(taken, bound, below)
                if upto > below:
                    bucket.inc(upto - below)
                    below = upto
            self._sum.inc(math.fsum(taken))

    def _child_samples(self) -> Iterable[Sample]:
        self._count()
        return super()._child_samples()


def _declare(name: str, metric: Metric) -> None:
    if name in _METRICS:
        raise ValueError(f"metric declared twice: {name}")
    if not metric.alias and not name.startswith("dray_"):
        raise ValueError(f"metric without the dray_ prefix: {name}")
    _METRICS[name] = metric


def declared() -> tuple[dict[str, str], dict[str, Metric]]:
    """All events, with their descriptions, and all metrics declared by the modules imported so far."""
    return dict(_EVENTS), dict(_METRICS)


def configure_logging(level: str = "info", stream: TextIO | None = None, form: Form = "auto") -> None:
    """Send structured logs to stderr (or `stream`), one event a line."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    out = stream or sys.stderr
    readable = form == "text" or (form == "auto" and out.isatty())
    rendered: list[Processor] = [structlog.processors.JSONRenderer()]
    if readable:
        rendered = [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="local"), _as_text]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _keep_warning,
            *rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,
    )


def be_quiet() -> None:
    """For use as a library: warnings and worse alone, unless the program has said otherwise."""
    if not structlog.is_configured():
        configure_logging("warning")


class _Lines:
    """Writes lines to a stream, or to what stderr is at that moment.

    A line that cannot be written is lost: nobody stops working because nobody reads what it says.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with _WRITING, suppress(OSError, ValueError):  # full or gone; closed
            print(line, file=self._stream or sys.stderr, flush=True)

    debug = info = warning = error = critical = msg


def _keep_warning(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    if line["level"] in _GRAVE:
        facts = f"{line['event']} {_facts(line)}".rstrip()
        _WARNINGS.append(
            Warned(at=str(line["timestamp"]), level=str(line["level"]), sentence=_sentence(line), facts=facts)
        )
    return line


def _as_text(logger: WrappedLogger, method: str, line: EventDict) -> str:
    """`12:00:31 warning  what happened  (package.event key=value)`."""
    facts = f"{line['event']} {_facts(line)}".rstrip()
    text = f"{line['local']} {line['level']:<8} {_sentence(line)}  ({facts})"
    trace = line.get("exception")
    return text if trace is None else f"{text}\n{trace}"


def _sentence(line: EventDict) -> str:
    return _EVENTS.get(str(line["event"]), str(line["event"]))


def _facts(line: EventDict) -> str:
    return " ".join(f"{name}={_shown(value)}" for name, value in line.items() if name not in _APART)


def _shown(value: object) -> str:
    """A value on one line; what a client sent must not move the cursor of a terminal."""
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)


def logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry these fields; on stderr unless configured otherwise."""
    if not structlog.is_configured():
        configure_logging()
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(**fields)
    return bound
