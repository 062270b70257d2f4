"""What a compactor is told by the process that starts it: one JSON object on its standard input.

Not by arguments, which everybody on a machine may read: credentials are in it.
"""

from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from dray.objects.opening import StoreOptions
from dray.objects.retry import RetryPolicy
from dray.telemetry import Form


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """The object store and the way to it."""

    url: str | None
    """None: in the data directory."""
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    credentials_file: str | None = None
    profile: str | None = None
    attempts: int = 9
    attempt_seconds: float = 10
    total_seconds: float = 60

    def options(self) -> StoreOptions:
        retry = RetryPolicy(
            attempts=self.attempts, attempt_seconds=self.attempt_seconds, total_seconds=self.total_seconds
        )
        return StoreOptions(
            endpoint=self.endpoint, region=self.region, access_key=self.access_key, secret_key=self.secret_key,
            session_token=self.session_token, profile=self.profile,
            credentials_file=None if self.credentials_file is None else Path(self.credentials_file), retry=retry,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        """For tasks of Spark, which have no settings of ours: as the tools of each cloud name it."""
        named: dict[str, str | None]
        match urlsplit(self.url or "").scheme:
            case "gs":
                named = {"GOOGLE_BASE_URL": self.endpoint, "GOOGLE_SERVICE_ACCOUNT": self.credentials_file}
            case "az":
                named = {
                    "AZURE_STORAGE_ENDPOINT": self.endpoint, "AZURE_STORAGE_ACCOUNT_NAME": self.access_key,
                    "AZURE_STORAGE_ACCOUNT_KEY": self.secret_key,
                }  # fmt: skip
            case _:
                named = {
                    "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": self.region, "AWS_ACCESS_KEY_ID": self.access_key,
                    "AWS_SECRET_ACCESS_KEY": self.secret_key, "AWS_SESSION_TOKEN": self.session_token,
                    "AWS_SHARED_CREDENTIALS_FILE": self.credentials_file, "AWS_PROFILE": self.profile,
                }  # fmt: skip
        return {name: value for name, value in named.items() if value is not None}


class CompactorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All that a compactor needs to know."""

    data: str
    log: str | None = None
    """That brokers of several machines share; then nothing of the data directory is used."""
    store: Store
    tables: bool
    catalog: str
    namespace: str
    keep_rows: bool
    """What the log drops stays in its table."""
    keep_tables: bool
    """The table of a deleted topic is renamed, not dropped."""
    age_ms: int
    size: int
    file_size: int
    cycle_size: int
    small_files: int
    settled_ms: int
    look_s: float
    idle_s: float
    master: str
    log_level: str
    log_form: Form
    topic: str | None = None
    """Compact this topic, whatever is due."""
    once: bool = False
    """One cycle, and no more."""
    leave_when_idle: bool = False
    """End when Spark would be stopped."""
    ask: Literal["status", "verify", "rebuild", "wait"] | None = None
    """Compact nothing: tell about the table of the topic, make it anew, or wait for it."""
    offset: int | None = None
    """Wait for the record at this offset; None: for what was acknowledged before."""
    partition: int | None = None
    """Of this partition; None: of all of them."""
    timeout_s: float = 0


class JobProgress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How far a job is, told on standard output while a cycle of `once` runs."""

    done: int
    total: int


class TopicDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle did for a topic."""

    topic: str
    partitions: int
    records: int
    bytes: int
    files: int
    file_bytes: int
    rewritten: int
    """Small files that became fewer."""
    state: str
    reason: str = ""


class CycleDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a cycle did, told on standard output at its end."""

    topics: list[TopicDone]
    failed: int
    seconds: float


class NothingDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Why nothing was done."""

    kind: str
    message: str
    next: str


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in its log and in its table."""

    partition: int
    log_start: int
    log_end: int
    table_end: int
    """Behind the last offset that is in the table."""
    lag_records: int
    lag_bytes: int
    lag_seconds: float
    """How old the oldest record is that is not in the table."""
    task: str
    """The step of the task that is under way; empty if there is none."""


class TableStatus(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The table of a topic, and how far it is behind the log."""

    topic: str
    table: str
    catalog: str
    metadata_location: str
    snapshot_id: int
    snapshot_ms: int
    """When it was made; 0: there is none."""
    snapshots: int
    files: int
    rows: int
    bytes: int
    state: Literal["none", "ok", "foreign"]
    """foreign: somebody else has changed the table. It stands still only if there is a problem."""
    foreign: list[str]
    """Snapshots of others since the table was made, or made anew, as far as they are kept."""
    problem: str
    """What keeps the table from going on; empty if nothing does."""
    problem_since_ms: int
    """When a compactor first saw it; 0: none has yet."""
    committed_until_ms: int
    """Every record that was acknowledged before this time is in the table; 0: not told."""
    partitions: list[PartitionStatus]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A record that log and table do not have alike."""

    partition: int
    offset: int
    what: Literal["missing", "surplus", "double", "changed"]
    """Missing from the table, not in the log, there more than once, or not the same."""


class Compared(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a comparison of log and table has found."""

    topic: str
    records: int
    """Of the log that should be in the table."""
    rows: int
    """Of the table, in the same ranges."""
    differences: list[Difference]
    """The first of them."""
    equal: bool


class TableRebuilt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What was done to make a table show what the log says."""

    topic: str
    added: int
    removed: int
    kept: int


class TableReached(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Whether a table came as far as was waited for."""

    topic: str
    reached: bool
    behind: list[PartitionStatus]
    """The partitions that did not."""
    problem: str


Said: TypeAlias = JobProgress | CycleDone | NothingDone | TableStatus | Compared | TableRebuilt | TableReached
"""What a compactor tells its parent, a JSON object a line."""
