"""Names of what the gRPC server reports."""

from typing import Final

from dray.telemetry import SECONDS, counter, event, gauge, histogram

CALLS: Final = counter("dray_grpc_calls_total", "Calls that ended, by method and status code.", ("method", "code"))
DURATION: Final = histogram(
    "dray_grpc_call_duration_seconds", "From a call's request to its answer; streams are not counted.", SECONDS,
    ("method",),
)  # fmt: skip
STREAMS: Final = gauge("dray_grpc_streams", "Streams that are open, by method.", ("method",))

LISTENING: Final = event("grpc.listening", "the gRPC port accepts connections")
STOPPED: Final = event("grpc.stopped", "the gRPC server has stopped; `cut` streams did not end in time")
CALL_FAILED: Final = event("grpc.call_failed", "a handler raised something unexpected; the client got INTERNAL")
STUCK: Final = event("grpc.stream_stuck", "a stream was ended because its client does not read")
NOT_RELEASED: Final = event(
    "grpc.not_released", "messages that a stream was never sent could not be given back; their deadlines do it"
)
