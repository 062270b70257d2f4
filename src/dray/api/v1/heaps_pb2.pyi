import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MIN: _ClassVar[Mode]
    MAX: _ClassVar[Mode]

class PayloadFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BYTES: _ClassVar[PayloadFormat]
    JSON: _ClassVar[PayloadFormat]

class OnUnavailable(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVE: _ClassVar[OnUnavailable]
    BLOCK: _ClassVar[OnUnavailable]

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    READY: _ClassVar[State]
    DELAYED: _ClassVar[State]
    LEASED: _ClassVar[State]
    DEAD: _ClassVar[State]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    ACK: _ClassVar[Kind]
    NACK: _ClassVar[Kind]
    RELEASE: _ClassVar[Kind]
    REJECT: _ClassVar[Kind]
    EXTEND: _ClassVar[Kind]
    RENEW: _ClassVar[Kind]
MIN: Mode
MAX: Mode
BYTES: PayloadFormat
JSON: PayloadFormat
SERVE: OnUnavailable
BLOCK: OnUnavailable
STATE_UNSPECIFIED: State
READY: State
DELAYED: State
LEASED: State
DEAD: State
KIND_UNSPECIFIED: Kind
ACK: Kind
NACK: Kind
RELEASE: Kind
REJECT: Kind
EXTEND: Kind
RENEW: Kind

class Backoff(_message.Message):
    __slots__ = ("base", "cap", "jitter")
    BASE_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    base: _duration_pb2.Duration
    cap: _duration_pb2.Duration
    jitter: bool
    def __init__(self, base: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., jitter: _Optional[bool] = ...) -> None: ...

class DlqPolicy(_message.Message):
    __slots__ = ("enabled", "retention")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    retention: _duration_pb2.Duration
    def __init__(self, enabled: _Optional[bool] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class HeapConfig(_message.Message):
    __slots__ = ("k", "visibility_timeout", "max_lease", "max_retries", "backoff", "dlq", "retention", "dedup_window", "message_ttl", "max_payload_bytes", "payload_format", "compression", "on_unavailable", "paused", "max_messages", "max_inflight", "max_leases_per_consumer", "max_dedup_keys", "history")
    K_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASE_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    DLQ_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TTL_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    ON_UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASES_PER_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MAX_DEDUP_KEYS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    k: int
    visibility_timeout: _duration_pb2.Duration
    max_lease: _duration_pb2.Duration
    max_retries: int
    backoff: Backoff
    dlq: DlqPolicy
    retention: _duration_pb2.Duration
    dedup_window: _duration_pb2.Duration
    message_ttl: _duration_pb2.Duration
    max_payload_bytes: int
    payload_format: PayloadFormat
    compression: bool
    on_unavailable: OnUnavailable
    paused: bool
    max_messages: int
    max_inflight: int
    max_leases_per_consumer: int
    max_dedup_keys: int
    history: str
    def __init__(self, k: _Optional[int] = ..., visibility_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_retries: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., dlq: _Optional[_Union[DlqPolicy, _Mapping]] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dedup_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., message_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_payload_bytes: _Optional[int] = ..., payload_format: _Optional[_Union[PayloadFormat, str]] = ..., compression: _Optional[bool] = ..., on_unavailable: _Optional[_Union[OnUnavailable, str]] = ..., paused: _Optional[bool] = ..., max_messages: _Optional[int] = ..., max_inflight: _Optional[int] = ..., max_leases_per_consumer: _Optional[int] = ..., max_dedup_keys: _Optional[int] = ..., history: _Optional[str] = ...) -> None: ...

class HeapRef(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListHeapsReq(_message.Message):
    __slots__ = ("page_size", "page_token", "prefix")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    prefix: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class ListHeapsResp(_message.Message):
    __slots__ = ("heaps", "next_page_token")
    HEAPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    heaps: _containers.RepeatedCompositeFieldContainer[Heap]
    next_page_token: str
    def __init__(self, heaps: _Optional[_Iterable[_Union[Heap, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MakeHeapReq(_message.Message):
    __slots__ = ("topic", "mode", "partitions", "replication_factor", "config", "spread")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    mode: Mode
    partitions: int
    replication_factor: int
    config: HeapConfig
    spread: bool
    def __init__(self, topic: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., config: _Optional[_Union[HeapConfig, _Mapping]] = ..., spread: _Optional[bool] = ...) -> None: ...

class Heap(_message.Message):
    __slots__ = ("topic", "mode", "partitions", "replication_factor", "config", "spread", "revision", "created", "heap_id", "durability")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    HEAP_ID_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    mode: Mode
    partitions: int
    replication_factor: int
    config: HeapConfig
    spread: bool
    revision: int
    created: _timestamp_pb2.Timestamp
    heap_id: str
    durability: str
    def __init__(self, topic: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., config: _Optional[_Union[HeapConfig, _Mapping]] = ..., spread: _Optional[bool] = ..., revision: _Optional[int] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., heap_id: _Optional[str] = ..., durability: _Optional[str] = ...) -> None: ...

class UpdateHeapConfigReq(_message.Message):
    __slots__ = ("topic", "config", "expected_revision", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    config: HeapConfig
    expected_revision: int
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., config: _Optional[_Union[HeapConfig, _Mapping]] = ..., expected_revision: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class DestroyReq(_message.Message):
    __slots__ = ("topic", "force", "confirmation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    confirmation: str
    def __init__(self, topic: _Optional[str] = ..., force: _Optional[bool] = ..., confirmation: _Optional[str] = ...) -> None: ...

class CountResp(_message.Message):
    __slots__ = ("count", "left")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    count: int
    left: int
    def __init__(self, count: _Optional[int] = ..., left: _Optional[int] = ...) -> None: ...

class PurgeReq(_message.Message):
    __slots__ = ("topic", "force", "confirmation", "include_leased", "include_dlq")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_LEASED_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DLQ_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    confirmation: str
    include_leased: bool
    include_dlq: bool
    def __init__(self, topic: _Optional[str] = ..., force: _Optional[bool] = ..., confirmation: _Optional[str] = ..., include_leased: _Optional[bool] = ..., include_dlq: _Optional[bool] = ...) -> None: ...

class StatsReq(_message.Message):
    __slots__ = ("topic", "by_partition", "by_priority")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BY_PARTITION_FIELD_NUMBER: _ClassVar[int]
    BY_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    by_partition: bool
    by_priority: bool
    def __init__(self, topic: _Optional[str] = ..., by_partition: _Optional[bool] = ..., by_priority: _Optional[bool] = ...) -> None: ...

class StatsResp(_message.Message):
    __slots__ = ("heaps",)
    HEAPS_FIELD_NUMBER: _ClassVar[int]
    heaps: _containers.RepeatedCompositeFieldContainer[HeapStats]
    def __init__(self, heaps: _Optional[_Iterable[_Union[HeapStats, _Mapping]]] = ...) -> None: ...

class HeapStats(_message.Message):
    __slots__ = ("topic", "partition", "ready", "delayed", "leased", "dead", "oldest_ready", "payload_bytes", "enqueued_total", "duplicates_total", "granted_total", "acked_total", "failed_total", "lease_timeouts_total", "dead_total", "dropped_total", "ready_by_priority")
    class ReadyByPriorityEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_READY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    GRANTED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ACKED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    FAILED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    LEASE_TIMEOUTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DEAD_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    READY_BY_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready: _duration_pb2.Duration
    payload_bytes: int
    enqueued_total: int
    duplicates_total: int
    granted_total: int
    acked_total: int
    failed_total: int
    lease_timeouts_total: int
    dead_total: int
    dropped_total: int
    ready_by_priority: _containers.ScalarMap[int, int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., ready: _Optional[int] = ..., delayed: _Optional[int] = ..., leased: _Optional[int] = ..., dead: _Optional[int] = ..., oldest_ready: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., payload_bytes: _Optional[int] = ..., enqueued_total: _Optional[int] = ..., duplicates_total: _Optional[int] = ..., granted_total: _Optional[int] = ..., acked_total: _Optional[int] = ..., failed_total: _Optional[int] = ..., lease_timeouts_total: _Optional[int] = ..., dead_total: _Optional[int] = ..., dropped_total: _Optional[int] = ..., ready_by_priority: _Optional[_Mapping[int, int]] = ...) -> None: ...

class EnqueueReq(_message.Message):
    __slots__ = ("topic", "payload", "priority", "partition_key", "producer_id", "epoch", "seq", "max_retries", "delay", "not_before", "dedup_key", "headers", "payload_format")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    payload: bytes
    priority: int
    partition_key: str
    producer_id: str
    epoch: int
    seq: int
    max_retries: int
    delay: _duration_pb2.Duration
    not_before: _timestamp_pb2.Timestamp
    dedup_key: str
    headers: _containers.ScalarMap[str, str]
    payload_format: PayloadFormat
    def __init__(self, topic: _Optional[str] = ..., payload: _Optional[bytes] = ..., priority: _Optional[int] = ..., partition_key: _Optional[str] = ..., producer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., max_retries: _Optional[int] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dedup_key: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., payload_format: _Optional[_Union[PayloadFormat, str]] = ...) -> None: ...

class EnqueueResp(_message.Message):
    __slots__ = ("message_id", "duplicate", "partition_id", "error")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    duplicate: bool
    partition_id: int
    error: Error
    def __init__(self, message_id: _Optional[str] = ..., duplicate: _Optional[bool] = ..., partition_id: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class EnqueueBatchReq(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[EnqueueReq]
    def __init__(self, items: _Optional[_Iterable[_Union[EnqueueReq, _Mapping]]] = ...) -> None: ...

class EnqueueBatchResp(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EnqueueResp]
    def __init__(self, results: _Optional[_Iterable[_Union[EnqueueResp, _Mapping]]] = ...) -> None: ...

class EnqueueMany(_message.Message):
    __slots__ = ("tag", "items")
    TAG_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    tag: int
    items: _containers.RepeatedCompositeFieldContainer[EnqueueReq]
    def __init__(self, tag: _Optional[int] = ..., items: _Optional[_Iterable[_Union[EnqueueReq, _Mapping]]] = ...) -> None: ...

class EnqueueManyResp(_message.Message):
    __slots__ = ("tag", "results")
    TAG_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    tag: int
    results: _containers.RepeatedCompositeFieldContainer[EnqueueResp]
    def __init__(self, tag: _Optional[int] = ..., results: _Optional[_Iterable[_Union[EnqueueResp, _Mapping]]] = ...) -> None: ...

class PopReq(_message.Message):
    __slots__ = ("topic", "max", "wait", "visibility", "consumer", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    max: int
    wait: _duration_pb2.Duration
    visibility: _duration_pb2.Duration
    consumer: str
    filter: PopFilter
    def __init__(self, topic: _Optional[str] = ..., max: _Optional[int] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., visibility: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., consumer: _Optional[str] = ..., filter: _Optional[_Union[PopFilter, _Mapping]] = ...) -> None: ...

class PopResp(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PopItem]
    def __init__(self, items: _Optional[_Iterable[_Union[PopItem, _Mapping]]] = ...) -> None: ...

class PopFilter(_message.Message):
    __slots__ = ("worst_priority",)
    WORST_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    worst_priority: int
    def __init__(self, worst_priority: _Optional[int] = ...) -> None: ...

class FlowControl(_message.Message):
    __slots__ = ("credits",)
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    credits: int
    def __init__(self, credits: _Optional[int] = ...) -> None: ...

class PopStop(_message.Message):
    __slots__ = ("release",)
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    release: bool
    def __init__(self, release: _Optional[bool] = ...) -> None: ...

class PopOpen(_message.Message):
    __slots__ = ("fc", "filter", "start", "settle", "stop")
    FC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    fc: FlowControl
    filter: PopFilter
    start: PopStart
    settle: SettleMany
    stop: PopStop
    def __init__(self, fc: _Optional[_Union[FlowControl, _Mapping]] = ..., filter: _Optional[_Union[PopFilter, _Mapping]] = ..., start: _Optional[_Union[PopStart, _Mapping]] = ..., settle: _Optional[_Union[SettleMany, _Mapping]] = ..., stop: _Optional[_Union[PopStop, _Mapping]] = ...) -> None: ...

class PopStart(_message.Message):
    __slots__ = ("topic", "visibility", "consumer", "filter", "credits")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    visibility: _duration_pb2.Duration
    consumer: str
    filter: PopFilter
    credits: int
    def __init__(self, topic: _Optional[str] = ..., visibility: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., consumer: _Optional[str] = ..., filter: _Optional[_Union[PopFilter, _Mapping]] = ..., credits: _Optional[int] = ...) -> None: ...

class PopDelivery(_message.Message):
    __slots__ = ("items", "settled", "status", "takes_credits")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TAKES_CREDITS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PopItem]
    settled: SettleManyResp
    status: PopStatus
    takes_credits: bool
    def __init__(self, items: _Optional[_Iterable[_Union[PopItem, _Mapping]]] = ..., settled: _Optional[_Union[SettleManyResp, _Mapping]] = ..., status: _Optional[_Union[PopStatus, _Mapping]] = ..., takes_credits: _Optional[bool] = ...) -> None: ...

class PopStatus(_message.Message):
    __slots__ = ("throttled", "retry_after", "stopping")
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    throttled: bool
    retry_after: _duration_pb2.Duration
    stopping: bool
    def __init__(self, throttled: _Optional[bool] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., stopping: _Optional[bool] = ...) -> None: ...

class PopItem(_message.Message):
    __slots__ = ("message_id", "payload", "priority", "lease_token", "lease_deadline", "attempts", "partition_id", "enqueued_time", "lease_for", "max_retries", "headers", "producer_id", "epoch", "seq", "degraded", "payload_format", "partition_key")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_TIME_FIELD_NUMBER: _ClassVar[int]
    LEASE_FOR_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    payload: bytes
    priority: int
    lease_token: str
    lease_deadline: _timestamp_pb2.Timestamp
    attempts: int
    partition_id: int
    enqueued_time: _timestamp_pb2.Timestamp
    lease_for: _duration_pb2.Duration
    max_retries: int
    headers: _containers.ScalarMap[str, str]
    producer_id: str
    epoch: int
    seq: int
    degraded: bool
    payload_format: PayloadFormat
    partition_key: str
    def __init__(self, message_id: _Optional[str] = ..., payload: _Optional[bytes] = ..., priority: _Optional[int] = ..., lease_token: _Optional[str] = ..., lease_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempts: _Optional[int] = ..., partition_id: _Optional[int] = ..., enqueued_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_retries: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., producer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., degraded: _Optional[bool] = ..., payload_format: _Optional[_Union[PayloadFormat, str]] = ..., partition_key: _Optional[str] = ...) -> None: ...

class AckReq(_message.Message):
    __slots__ = ("topic", "message_id", "lease_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    lease_token: str
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., lease_token: _Optional[str] = ...) -> None: ...

class NackReq(_message.Message):
    __slots__ = ("topic", "message_id", "lease_token", "backoff_override", "error", "kind")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    lease_token: str
    backoff_override: _duration_pb2.Duration
    error: str
    kind: Kind
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., lease_token: _Optional[str] = ..., backoff_override: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., error: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ...) -> None: ...

class NackResp(_message.Message):
    __slots__ = ("dead", "not_before")
    DEAD_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    dead: bool
    not_before: _timestamp_pb2.Timestamp
    def __init__(self, dead: _Optional[bool] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ExtendReq(_message.Message):
    __slots__ = ("topic", "lease_token", "extension", "from_now")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_FIELD_NUMBER: _ClassVar[int]
    FROM_NOW_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lease_token: str
    extension: _duration_pb2.Duration
    from_now: bool
    def __init__(self, topic: _Optional[str] = ..., lease_token: _Optional[str] = ..., extension: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., from_now: _Optional[bool] = ...) -> None: ...

class ExtendResp(_message.Message):
    __slots__ = ("lease_deadline", "lease_for")
    LEASE_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FOR_FIELD_NUMBER: _ClassVar[int]
    lease_deadline: _timestamp_pb2.Timestamp
    lease_for: _duration_pb2.Duration
    def __init__(self, lease_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SettleOne(_message.Message):
    __slots__ = ("lease_token", "kind", "duration", "error")
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease_token: str
    kind: Kind
    duration: _duration_pb2.Duration
    error: str
    def __init__(self, lease_token: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class SettleMany(_message.Message):
    __slots__ = ("tag", "items", "credits")
    TAG_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    tag: int
    items: _containers.RepeatedCompositeFieldContainer[SettleOne]
    credits: int
    def __init__(self, tag: _Optional[int] = ..., items: _Optional[_Iterable[_Union[SettleOne, _Mapping]]] = ..., credits: _Optional[int] = ...) -> None: ...

class SettleReq(_message.Message):
    __slots__ = ("topic", "items")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    items: _containers.RepeatedCompositeFieldContainer[SettleOne]
    def __init__(self, topic: _Optional[str] = ..., items: _Optional[_Iterable[_Union[SettleOne, _Mapping]]] = ...) -> None: ...

class SettleResp(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Settled]
    def __init__(self, results: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ...) -> None: ...

class SettleManyResp(_message.Message):
    __slots__ = ("tag", "results")
    TAG_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    tag: int
    results: _containers.RepeatedCompositeFieldContainer[Settled]
    def __init__(self, tag: _Optional[int] = ..., results: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("done", "dead", "lease_for", "error")
    DONE_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    LEASE_FOR_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    done: bool
    dead: bool
    lease_for: _duration_pb2.Duration
    error: Error
    def __init__(self, done: _Optional[bool] = ..., dead: _Optional[bool] = ..., lease_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class PeekReq(_message.Message):
    __slots__ = ("topic", "state", "limit", "page_token", "message_id", "payload")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    state: State
    limit: int
    page_token: str
    message_id: str
    payload: bool
    def __init__(self, topic: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., limit: _Optional[int] = ..., page_token: _Optional[str] = ..., message_id: _Optional[str] = ..., payload: _Optional[bool] = ...) -> None: ...

class PeekResp(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PeekedMessage]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[PeekedMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PeekedMessage(_message.Message):
    __slots__ = ("message", "state", "not_before", "holder", "last_error", "dead_time")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    DEAD_TIME_FIELD_NUMBER: _ClassVar[int]
    message: PopItem
    state: State
    not_before: _timestamp_pb2.Timestamp
    holder: str
    last_error: str
    dead_time: _timestamp_pb2.Timestamp
    def __init__(self, message: _Optional[_Union[PopItem, _Mapping]] = ..., state: _Optional[_Union[State, str]] = ..., not_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., holder: _Optional[str] = ..., last_error: _Optional[str] = ..., dead_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class MoveToDlqReq(_message.Message):
    __slots__ = ("topic", "message_ids", "force", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    force: bool
    reason: str
    def __init__(self, topic: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., force: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class DlqReplayReq(_message.Message):
    __slots__ = ("topic", "message_ids", "all", "keep_time", "per_second", "dry_run", "priority")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    KEEP_TIME_FIELD_NUMBER: _ClassVar[int]
    PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    keep_time: bool
    per_second: int
    dry_run: bool
    priority: int
    def __init__(self, topic: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ..., keep_time: _Optional[bool] = ..., per_second: _Optional[int] = ..., dry_run: _Optional[bool] = ..., priority: _Optional[int] = ...) -> None: ...

class DlqDeleteReq(_message.Message):
    __slots__ = ("topic", "message_ids", "all", "force", "confirmation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    force: bool
    confirmation: str
    def __init__(self, topic: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ..., force: _Optional[bool] = ..., confirmation: _Optional[str] = ...) -> None: ...

class CreateKeyReq(_message.Message):
    __slots__ = ("name", "principal", "expires_in", "role")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    principal: str
    expires_in: _duration_pb2.Duration
    role: str
    def __init__(self, name: _Optional[str] = ..., principal: _Optional[str] = ..., expires_in: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., role: _Optional[str] = ...) -> None: ...

class CreateKeyResp(_message.Message):
    __slots__ = ("key", "secret")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    key: Key
    secret: str
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("id", "name", "principal", "created", "last_used", "expires", "revoked", "role")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    principal: str
    created: _timestamp_pb2.Timestamp
    last_used: _timestamp_pb2.Timestamp
    expires: _timestamp_pb2.Timestamp
    revoked: bool
    role: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., principal: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_used: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revoked: _Optional[bool] = ..., role: _Optional[str] = ...) -> None: ...

class ListKeysReq(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListKeysResp(_message.Message):
    __slots__ = ("keys", "next_page_token")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[Key]
    next_page_token: str
    def __init__(self, keys: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RevokeKeyReq(_message.Message):
    __slots__ = ("id", "force", "confirmation")
    ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    force: bool
    confirmation: str
    def __init__(self, id: _Optional[str] = ..., force: _Optional[bool] = ..., confirmation: _Optional[str] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("kind", "message", "retryable", "may_have_happened")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    MAY_HAVE_HAPPENED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    retryable: bool
    may_have_happened: bool
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., may_have_happened: _Optional[bool] = ...) -> None: ...
