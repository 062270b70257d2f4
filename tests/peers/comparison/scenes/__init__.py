"""All scenes, in the order of the page."""

from tests.peers.comparison.scenes import (
    batches,
    fetching,
    framing,
    groups,
    idempotence,
    offsets_by_time,
    produce,
    topics,
)

SCENES = (
    *framing.SCENES,
    *produce.SCENES,
    *batches.SCENES,
    *idempotence.SCENES,
    *fetching.SCENES,
    *offsets_by_time.SCENES,
    *topics.SCENES,
    *groups.SCENES,
)
