"""A broker that is about to stop sends clients elsewhere, while it still finishes what it has taken.

Everybody knows by then that it withdrew, so the new leaders are in every
answer to Metadata, its own included. Whoever produces, fetches or asks for
offsets is told 6 (not the leader): clients refresh their metadata at once and
go to whom they find there. All else is served to the end.

Invariants
    SV4  What is refused here did not happen: a request is refused whole,
         before its handler has begun, and never one that gets no answer.
"""

from typing import Final

import msgspec

from dray.servers.kafka.codec import Message
from dray.servers.kafka.dispatch import Route
from dray.servers.kafka.error_codes import ErrorCode

LED: Final = frozenset({0, 1, 2})
"""Produce, Fetch and ListOffsets: what clients ask the leader of a partition."""


def sent_elsewhere(route: Route, message: Message) -> Message | None:
    """The answer that makes a client look for the new leader; None where there is none, and the request is served."""
    if route.api.key not in LED:
        return None
    answer = route.endpoint.refuse(message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if answer is not None and "error_code" in answer.__struct_fields__:
        # It is said of each partition: of the request as a whole it would mean something else.
        return msgspec.structs.replace(answer, error_code=ErrorCode.NONE)
    return answer
