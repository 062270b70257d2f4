"""Spans, if `opentelemetry-api` is there: everything that is named by its conventions is named here.

    enqueue HEAP (producer)  ─ traceparent in the headers ─►  process HEAP (consumer, a child, with a link)
    settle HEAP (client)

Without the library nothing happens. No span has a payload, a token or a header.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import SpanKind

try:
    from opentelemetry import propagate, trace
except ImportError:  # not installed: nobody looks
    _HERE = False
else:
    _HERE = True


def attributes_of(heap: str, operation: str, **more: str | int) -> dict[str, str | int]:
    """What spans of messaging systems have."""
    return {
        "messaging.system": "dray",
        "messaging.destination.name": heap,
        "messaging.operation.name": operation,
        **{f"messaging.{name.replace('__', '.')}": value for name, value in more.items()},
    }


@contextmanager
def producing(heap: str, headers: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A span for an enqueue; yields the headers with the context in them."""
    carried = dict(headers)
    if not _HERE:
        yield carried
        return
    tracer = trace.get_tracer("dray.client")
    with tracer.start_as_current_span(
        f"enqueue {heap}", kind=_kind("PRODUCER"), attributes=attributes_of(heap, "enqueue")
    ):
        propagate.inject(carried)
        yield carried


@contextmanager
def processing(heap: str, headers: Mapping[str, str], message_id: str, partition: int) -> Iterator[None]:
    """A span for the body of a job, linked to the one that enqueued it."""
    if not _HERE:
        yield
        return
    tracer = trace.get_tracer("dray.client")
    sent = propagate.extract(headers)
    origin = trace.get_current_span(sent).get_span_context()
    attributes = attributes_of(heap, "process", message__id=message_id, destination__partition__id=str(partition))
    with tracer.start_as_current_span(
        f"process {heap}",
        context=sent,
        kind=_kind("CONSUMER"),
        links=[trace.Link(origin)] if origin.is_valid else [],
        attributes=attributes,
    ):
        yield


@contextmanager
def calling(heap: str, operation: str) -> Iterator[None]:
    """A span for a settlement or a batch."""
    if not _HERE:
        yield
        return
    with trace.get_tracer("dray.client").start_as_current_span(
        f"{operation} {heap}", kind=_kind("CLIENT"), attributes=attributes_of(heap, operation)
    ):
        yield


def _kind(name: str) -> "SpanKind":
    return trace.SpanKind[name]
