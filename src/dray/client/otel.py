"""Spans, if `opentelemetry-api` is there: everything that is named by its conventions is named here.

    enqueue HEAP (producer)  ─ traceparent in the headers ─►  process HEAP (consumer, a child, with a link)
    settle HEAP (client)

Without the library nothing happens, and where no program has said where spans
go hardly anything does: a context that came from outside is still passed on.
No span has a payload, a token or a header.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.trace import SpanKind

try:
    from opentelemetry import context, propagate, trace
except ImportError:  # not installed: nobody looks
    _HERE = False
else:
    _HERE = True
_asked = False
_NOTHING: Final = nullcontext()


def attributes_of(heap: str, operation: str, **more: str | int) -> dict[str, str | int]:
    """What spans of messaging systems have."""
    return {
        "messaging.system": "dray",
        "messaging.destination.name": heap,
        "messaging.operation.name": operation,
        **{f"messaging.{name.replace('__', '.')}": value for name, value in more.items()},
    }


def is_watched(headers: Mapping[str, str] | None = None) -> bool:
    """Does somebody take spans, or is there a context to pass on?"""
    if not _HERE:
        return False
    return bool(headers or context.get_current()) or _has_provider()


def _has_provider() -> bool:
    """Has a program said where spans go?

    Until one has, the library looks into the environment at every call: once is enough. Its own variable says at no
    cost whether somebody has spoken since; where it has none of that name, it is asked each time.
    """
    global _asked
    if _asked and getattr(trace, "_TRACER_PROVIDER", _asked) is None:
        return False
    _asked = True
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def producing(heap: str, headers: Mapping[str, str]) -> AbstractContextManager[dict[str, str]]:
    """A span for an enqueue; yields the headers with the context in them."""
    return _producing(heap, headers) if is_watched() else nullcontext(dict(headers))


@contextmanager
def _producing(heap: str, headers: Mapping[str, str]) -> Iterator[dict[str, str]]:
    carried = dict(headers)
    tracer = trace.get_tracer("dray.client")
    with tracer.start_as_current_span(
        f"enqueue {heap}", kind=_kind("PRODUCER"), attributes=attributes_of(heap, "enqueue")
    ):
        propagate.inject(carried)
        yield carried


def processing(heap: str, headers: Mapping[str, str], message_id: str, partition: int) -> AbstractContextManager[None]:
    """A span for the body of a job, linked to the one that enqueued it."""
    return _processing(heap, headers, message_id, partition) if is_watched(headers) else _NOTHING


@contextmanager
def _processing(heap: str, headers: Mapping[str, str], message_id: str, partition: int) -> Iterator[None]:
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


def calling(heap: str, operation: str) -> AbstractContextManager[None]:
    """A span for a settlement or a batch."""
    return _calling(heap, operation) if is_watched() else _NOTHING


@contextmanager
def _calling(heap: str, operation: str) -> Iterator[None]:
    with trace.get_tracer("dray.client").start_as_current_span(
        f"{operation} {heap}", kind=_kind("CLIENT"), attributes=attributes_of(heap, operation)
    ):
        yield


def _kind(name: str) -> "SpanKind":
    return trace.SpanKind[name]
