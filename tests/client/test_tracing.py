"""Spans: a message's way from producer to consumer is one trace."""

import subprocess
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dray.testing.heaps import heaps


async def test_the_spans_of_a_message_are_one_trace_and_have_no_payload():
    """D-239, D-240, D-257, D-262"""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    async with heaps() as dray:
        await dray.client.make_heap("jobs")
        heap = dray.client.heap("jobs")
        await heap.enqueue({"secret": "payload-of-a-user"}, headers={"private": "header-of-a-user"})
        async with heap.pop() as consumer, consumer.item() as job:
            assert "traceparent" in job.headers
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"enqueue jobs", "process jobs", "settle jobs"}
    sent, processed = spans["enqueue jobs"], spans["process jobs"]
    assert processed.context.trace_id == sent.context.trace_id
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]
    assert processed.attributes["messaging.destination.name"] == "jobs"
    shown = "".join(span.to_json() for span in spans.values())
    assert "of-a-user" not in shown
    assert job.lease_token not in shown


def test_without_a_provider_nothing_is_added_and_a_context_from_outside_is_passed_on():
    """D-257: in a process of its own, since a provider is for ever."""
    program = """if True:
        from opentelemetry import context, propagate
        from dray.client import otel
        sent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        with otel.producing("jobs", {"a": "b"}) as carried:
            assert carried == {"a": "b"}, carried
        with otel.processing("jobs", sent, "id", 0):
            with otel.producing("jobs", {}) as carried:
                assert carried == sent, carried
        with otel.producing("jobs", {}) as carried, otel.calling("jobs", "settle"):
            assert carried == {}, carried
        context.attach(propagate.extract(sent))
        with otel.producing("jobs", {}) as carried:
            assert carried == sent, carried
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
