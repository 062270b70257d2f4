"""Checkpoints of one domain: `port` says what they are, the adapters lie beside it."""

from dray.replica.checkpoints.files import FileCheckpoints
from dray.replica.checkpoints.joined import JoinedCheckpoints
from dray.replica.checkpoints.memory import MemoryCheckpoints
from dray.replica.checkpoints.newest import newest_machine, report_damaged
from dray.replica.checkpoints.port import CheckpointStore, ReadableCheckpoints
from dray.replica.checkpoints.published import PublishedCheckpoints, published_logs
from dray.replica.checkpoints.shared import SharedCheckpoints
from dray.replica.checkpoints.visiting import VisitingCheckpoints

__all__ = [
    "CheckpointStore",
    "FileCheckpoints",
    "JoinedCheckpoints",
    "MemoryCheckpoints",
    "PublishedCheckpoints",
    "ReadableCheckpoints",
    "SharedCheckpoints",
    "VisitingCheckpoints",
    "newest_machine",
    "published_logs",
    "report_damaged",
]
