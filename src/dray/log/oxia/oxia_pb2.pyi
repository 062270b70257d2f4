from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Router(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUTER_UNKNOWN: _ClassVar[Router]
    XXHASH3: _ClassVar[Router]

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Status]
    KEY_NOT_FOUND: _ClassVar[Status]
    UNEXPECTED_VERSION: _ClassVar[Status]
    SESSION_DOES_NOT_EXIST: _ClassVar[Status]

class Comparison(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EQUAL: _ClassVar[Comparison]
    FLOOR: _ClassVar[Comparison]
    CEILING: _ClassVar[Comparison]
    LOWER: _ClassVar[Comparison]
    HIGHER: _ClassVar[Comparison]
ROUTER_UNKNOWN: Router
XXHASH3: Router
OK: Status
KEY_NOT_FOUND: Status
UNEXPECTED_VERSION: Status
SESSION_DOES_NOT_EXIST: Status
EQUAL: Comparison
FLOOR: Comparison
CEILING: Comparison
LOWER: Comparison
HIGHER: Comparison

class AssignmentsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class Assignments(_message.Message):
    __slots__ = ("namespaces",)
    class NamespacesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Shards
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Shards, _Mapping]] = ...) -> None: ...
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.MessageMap[str, Shards]
    def __init__(self, namespaces: _Optional[_Mapping[str, Shards]] = ...) -> None: ...

class Shards(_message.Message):
    __slots__ = ("shards", "router")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    router: Router
    def __init__(self, shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., router: _Optional[_Union[Router, str]] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("shard", "leader", "hashes")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    shard: int
    leader: str
    hashes: HashRange
    def __init__(self, shard: _Optional[int] = ..., leader: _Optional[str] = ..., hashes: _Optional[_Union[HashRange, _Mapping]] = ...) -> None: ...

class HashRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("shard", "puts", "delete_ranges")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PUTS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RANGES_FIELD_NUMBER: _ClassVar[int]
    shard: int
    puts: _containers.RepeatedCompositeFieldContainer[Put]
    delete_ranges: _containers.RepeatedCompositeFieldContainer[DeleteRange]
    def __init__(self, shard: _Optional[int] = ..., puts: _Optional[_Iterable[_Union[Put, _Mapping]]] = ..., delete_ranges: _Optional[_Iterable[_Union[DeleteRange, _Mapping]]] = ...) -> None: ...

class Put(_message.Message):
    __slots__ = ("key", "value", "expected_version", "partition_key", "sequence_deltas")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_DELTAS_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    expected_version: int
    partition_key: str
    sequence_deltas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., expected_version: _Optional[int] = ..., partition_key: _Optional[str] = ..., sequence_deltas: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: str
    end: str
    def __init__(self, start: _Optional[str] = ..., end: _Optional[str] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("puts", "delete_ranges")
    PUTS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RANGES_FIELD_NUMBER: _ClassVar[int]
    puts: _containers.RepeatedCompositeFieldContainer[PutResponse]
    delete_ranges: _containers.RepeatedCompositeFieldContainer[DeleteRangeResponse]
    def __init__(self, puts: _Optional[_Iterable[_Union[PutResponse, _Mapping]]] = ..., delete_ranges: _Optional[_Iterable[_Union[DeleteRangeResponse, _Mapping]]] = ...) -> None: ...

class PutResponse(_message.Message):
    __slots__ = ("status", "version", "key")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    status: Status
    version: Version
    key: str
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., key: _Optional[str] = ...) -> None: ...

class DeleteRangeResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    def __init__(self, status: _Optional[_Union[Status, str]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("shard", "gets")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    GETS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    gets: _containers.RepeatedCompositeFieldContainer[Get]
    def __init__(self, shard: _Optional[int] = ..., gets: _Optional[_Iterable[_Union[Get, _Mapping]]] = ...) -> None: ...

class Get(_message.Message):
    __slots__ = ("key", "include_value", "comparison")
    KEY_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_VALUE_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    key: str
    include_value: bool
    comparison: Comparison
    def __init__(self, key: _Optional[str] = ..., include_value: _Optional[bool] = ..., comparison: _Optional[_Union[Comparison, str]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("gets",)
    GETS_FIELD_NUMBER: _ClassVar[int]
    gets: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, gets: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("status", "version", "value", "key")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    status: Status
    version: Version
    value: bytes
    key: str
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., value: _Optional[bytes] = ..., key: _Optional[str] = ...) -> None: ...

class RangeScanRequest(_message.Message):
    __slots__ = ("shard", "start", "end")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    shard: int
    start: str
    end: str
    def __init__(self, shard: _Optional[int] = ..., start: _Optional[str] = ..., end: _Optional[str] = ...) -> None: ...

class RangeScanResponse(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class SequenceRequest(_message.Message):
    __slots__ = ("shard", "key")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    shard: int
    key: str
    def __init__(self, shard: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class SequenceResponse(_message.Message):
    __slots__ = ("highest_key",)
    HIGHEST_KEY_FIELD_NUMBER: _ClassVar[int]
    highest_key: str
    def __init__(self, highest_key: _Optional[str] = ...) -> None: ...
