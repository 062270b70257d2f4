"""Heaps and their messages as JSON: the messages of the proto, with the same names."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dray.servers.http.errors import ErrorBody
from dray.servers.http.values import U32, Duration, In, Int64, NameText, Offset, Out, ShortText, Time

MAX_ITEMS: Final = 1_000
SIGNED: Final = 1 << 63

ModeText: TypeAlias = Literal["MIN", "MAX"]
FormatName: TypeAlias = Literal["BYTES", "JSON"]
StateText: TypeAlias = Literal["READY", "DELAYED", "LEASED", "DEAD"]
KindName: TypeAlias = Literal["ACK", "NACK", "RELEASE", "REJECT", "EXTEND", "RENEW"]
Word: TypeAlias = Annotated[int, Meta(ge=0, le=U32)]
Priority: TypeAlias = Annotated[int, Meta(ge=-SIGNED, le=SIGNED - 1)]
Unsigned: TypeAlias = Annotated[int, Meta(ge=0)]
Token: TypeAlias = Annotated[str, Meta(max_length=100)]
IdTexts: TypeAlias = Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=MAX_ITEMS)]


class BackoffIn(In, frozen=True, kw_only=True):
    """How long a message rests after a failure: `base` doubled each time, `cap` at most."""

    base: Duration | None = None
    cap: Duration | None = None
    jitter: bool | None = None


class DlqIn(In, frozen=True, kw_only=True):
    """What becomes of messages that have failed too often."""

    enabled: bool | None = None
    retention: Duration | None = None


class HeapConfigIn(In, frozen=True, kw_only=True):
    """What is said about a heap; what is left out stays as it is."""

    k: Word | None = None
    visibility_timeout: Duration | None = None
    max_lease: Duration | None = None
    max_retries: Word | None = None
    backoff: BackoffIn | None = None
    dlq: DlqIn | None = None
    retention: Duration | None = None
    dedup_window: Duration | None = None
    message_ttl: Duration | None = None
    max_payload_bytes: Word | None = None
    payload_format: FormatName | None = None
    compression: bool | None = None
    on_unavailable: Literal["SERVE", "BLOCK"] | None = None
    paused: bool | None = None
    max_messages: Word | None = None
    max_inflight: Word | None = None
    max_leases_per_consumer: Word | None = None
    max_dedup_keys: Word | None = None
    history: Annotated[str, Meta(max_length=249)] | None = None
    """The topic that is told what happens to each message; empty: none."""


class MakeHeapIn(In, frozen=True, kw_only=True):
    """A heap to make."""

    topic: NameText
    mode: ModeText = "MIN"
    partitions: Word = 1
    replication_factor: Word = 1
    config: HeapConfigIn = msgspec.field(default_factory=HeapConfigIn)
    spread: bool = False


class UpdateHeapIn(In, frozen=True, kw_only=True):
    """Another config, or other partitions."""

    config: HeapConfigIn = msgspec.field(default_factory=HeapConfigIn)
    partitions: Word | None = None
    expected_revision: Offset | None = None


class BackoffOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    base: Duration
    cap: Duration
    jitter: bool


class DlqOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    enabled: bool
    retention: Duration


class HeapConfigOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    """The config of a heap."""

    k: int
    visibility_timeout: Duration
    max_lease: Duration
    max_retries: int
    backoff: BackoffOut
    dlq: DlqOut
    retention: Duration
    dedup_window: Duration
    message_ttl: Duration
    max_payload_bytes: int
    payload_format: FormatName
    compression: bool
    on_unavailable: Literal["SERVE", "BLOCK"]
    paused: bool
    max_messages: Int64
    max_inflight: int
    max_leases_per_consumer: int
    max_dedup_keys: int
    history: str


class HeapOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    """A heap."""

    topic: str
    mode: ModeText
    partitions: int
    replication_factor: int
    config: HeapConfigOut
    spread: bool
    revision: Int64
    created: Time
    heap_id: str
    durability: str
    """What an answer means: `synced` survives a power cut, `memory` does not survive the process."""


class ListHeapsQuery(In, frozen=True, kw_only=True):
    page_size: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 100
    page_token: ShortText = ""
    prefix: ShortText = ""


class HeapsOut(Out, frozen=True, kw_only=True):
    """Heaps by name; `next_page_token` if there are more."""

    heaps: list[HeapOut]
    next_page_token: str = ""


class DestroyQuery(In, frozen=True, kw_only=True):
    """What cannot be undone is asked for twice: with force, and the confirmation of the first answer."""

    force: bool = False
    confirmation: ShortText = ""


class PurgeIn(In, frozen=True, kw_only=True):
    """Delete the messages of a heap that are there now."""

    force: bool = False
    confirmation: ShortText = ""
    include_leased: bool = False
    include_dlq: bool = False


class CountOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    """To how many messages it was done, and of how many of those asked for it was not."""

    count: Int64
    left: Int64 = "0"


class EnqueueIn(In, frozen=True, kw_only=True):
    """A message: its payload in base64, or as JSON."""

    topic: NameText
    payload: bytes | None = None
    payload_json: msgspec.Raw | UnsetType = UNSET
    priority: Priority = 0
    partition_key: ShortText = ""
    producer_id: ShortText = ""
    epoch: Unsigned | None = None
    seq: Unsigned | None = None
    max_retries: Word | None = None
    delay: Duration | None = None
    not_before: Time | None = None
    dedup_key: ShortText = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    payload_format: FormatName | None = None


class EnqueueListIn(In, frozen=True, kw_only=True):
    """Messages."""

    items: Annotated[list[EnqueueIn], Meta(min_length=1, max_length=MAX_ITEMS)]


class EnqueuedOut(Out, frozen=True, kw_only=True):
    """What became of a message: it is durable, or there is an error."""

    message_id: str | None = None
    duplicate: bool = False
    partition_id: int | None = None
    error: ErrorBody | None = None


class EnqueuedListOut(Out, frozen=True, kw_only=True):
    """One result for each message, in order."""

    results: list[EnqueuedOut]


class FilterIn(In, frozen=True, kw_only=True):
    """Only messages whose priority is not worse."""

    worst_priority: Priority | None = None


class PopIn(In, frozen=True, kw_only=True):
    """What a consumer wants; it waits for the first message."""

    topic: NameText
    max: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 1
    wait: Duration = "0s"
    visibility: Duration | None = None
    consumer: Annotated[str, Meta(max_length=255)] = ""
    filter: FilterIn = msgspec.field(default_factory=FilterIn)


class MessageOut(Out, frozen=True, kw_only=True):
    """A message. A lease is measured by `lease_for` from its receipt, never by the clock time."""

    message_id: str
    priority: Int64
    payload: bytes | UnsetType = UNSET
    payload_json: msgspec.Raw | UnsetType = UNSET
    payload_format: FormatName
    attempts: int
    max_retries: int
    partition_id: int
    enqueued_time: Time
    lease_token: str | UnsetType = UNSET
    lease_for: Duration | UnsetType = UNSET
    lease_deadline: Time | UnsetType = UNSET
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    partition_key: str = ""
    producer_id: str = ""
    epoch: Int64 | UnsetType = UNSET
    seq: Int64 | UnsetType = UNSET


class PoppedOut(Out, frozen=True, kw_only=True):
    """Messages that are the consumer's until their leases end."""

    items: list[MessageOut]


class StreamQuery(In, frozen=True, kw_only=True):
    """A stream of messages, at most so many of them unsettled."""

    max_unsettled: Annotated[int, Meta(ge=1, le=10_000)] = 1
    visibility: Duration | None = None
    consumer: Annotated[str, Meta(max_length=255)] = ""
    worst_priority: Priority | None = None


class StatusOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    stopping: bool


class StatusLineOut(Out, frozen=True, kw_only=True):
    """The stream is alive; `stopping`: this broker is about to end, ask another one."""

    status: StatusOut


class AckIn(In, frozen=True, kw_only=True):
    """A message is done."""

    topic: NameText
    lease_token: Token
    message_id: Token = ""


class NackIn(In, frozen=True, kw_only=True):
    """A message failed: NACK counts, RELEASE does not, REJECT makes it a dead letter."""

    topic: NameText
    lease_token: Token
    message_id: Token = ""
    backoff_override: Duration | None = None
    error: Annotated[str, Meta(max_length=4_096)] = ""
    kind: Literal["NACK", "RELEASE", "REJECT"] = "NACK"


class NackedOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    """Whether it is dead now; else when it comes back."""

    dead: bool
    not_before: Time | UnsetType = UNSET


class ExtendIn(In, frozen=True, kw_only=True):
    """A lease is to last longer: from its end, or from now."""

    topic: NameText
    lease_token: Token
    extension: Duration
    from_now: bool = False


class ExtendedOut(Out, frozen=True, kw_only=True):
    lease_for: Duration
    lease_deadline: Time


class SettleOneIn(In, frozen=True, kw_only=True):
    """What becomes of one delivery."""

    lease_token: Token
    kind: KindName
    duration: Duration | None = None
    error: Annotated[str, Meta(max_length=4_096)] = ""


class SettleIn(In, frozen=True, kw_only=True):
    """Many settlements, each for itself."""

    topic: NameText
    items: Annotated[list[SettleOneIn], Meta(min_length=1, max_length=MAX_ITEMS)]


class SettledOut(Out, frozen=True, kw_only=True):
    done: bool = False
    dead: bool = False
    lease_for: Duration | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET


class SettledListOut(Out, frozen=True, kw_only=True):
    results: list[SettledOut]


class PeekQuery(In, frozen=True, kw_only=True):
    """Which messages to look at; nothing changes."""

    topic: NameText
    state: StateText = "READY"
    limit: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 100
    page_token: ShortText = ""
    message_id: Token = ""
    payload: bool = True


class DlqQuery(In, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 100
    page_token: ShortText = ""
    payload: bool = True


class PeekedOut(Out, frozen=True, kw_only=True):
    message: MessageOut
    state: StateText
    not_before: Time | UnsetType = UNSET
    holder: str = ""
    last_error: str = ""
    dead_time: Time | UnsetType = UNSET


class PeekedListOut(Out, frozen=True, kw_only=True):
    messages: list[PeekedOut]
    next_page_token: str = ""


class StatsQuery(In, frozen=True, kw_only=True):
    """Of one heap, or of all."""

    topic: Annotated[str, Meta(max_length=249)] = ""
    by_partition: bool = False
    by_priority: bool = False


class HeapStatsOut(Out, frozen=True, omit_defaults=False, kw_only=True):
    """A heap, or one of its partitions."""

    topic: str
    ready: Int64
    delayed: Int64
    leased: Int64
    dead: Int64
    payload_bytes: Int64
    partition: int | UnsetType = UNSET
    oldest_ready: Duration | UnsetType = UNSET
    enqueued_total: Int64 | UnsetType = UNSET
    duplicates_total: Int64 | UnsetType = UNSET
    granted_total: Int64 | UnsetType = UNSET
    acked_total: Int64 | UnsetType = UNSET
    failed_total: Int64 | UnsetType = UNSET
    lease_timeouts_total: Int64 | UnsetType = UNSET
    dead_total: Int64 | UnsetType = UNSET
    dropped_total: Int64 | UnsetType = UNSET
    ready_by_priority: dict[str, Int64] | UnsetType = UNSET


class StatsOut(Out, frozen=True, kw_only=True):
    heaps: list[HeapStatsOut]


class BuryIn(In, frozen=True, kw_only=True):
    """Messages to make dead letters."""

    message_ids: IdTexts
    force: bool = False
    reason: ShortText = ""


class ReplayIn(In, frozen=True, kw_only=True):
    """Dead letters to make ready again: these, or all."""

    message_ids: IdTexts = msgspec.field(default_factory=list)
    all: bool = False
    keep_time: bool = False
    per_second: Word = 0
    dry_run: bool = False
    priority: Priority | None = None


class DropIn(In, frozen=True, kw_only=True):
    """Dead letters to delete: these, or all."""

    message_ids: IdTexts = msgspec.field(default_factory=list)
    all: bool = False
    force: bool = False
    confirmation: ShortText = ""
