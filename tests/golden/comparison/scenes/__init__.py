"""All scenes, in the order of the page."""

from tests.golden.comparison.scenes import (
    batches,
    classic_members,
    cluster,
    configs,
    consumer_members,
    fetching,
    framing,
    group_admin,
    groups,
    idempotence,
    offsets_by_time,
    partitions,
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
    *configs.SCENES,
    *partitions.SCENES,
    *cluster.SCENES,
    *groups.SCENES,
    *classic_members.SCENES,
    *consumer_members.SCENES,
    *group_admin.SCENES,
)
