"""Spans: a message's way from producer to consumer is one trace."""

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
