"""Records as JSON."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dray.records import NO_TIMESTAMP, NewRecord, Record
from dray.servers.http.errors import BadRequest
from dray.servers.http.values import In, Int64, Out, PartitionNumber, Time, ms_of, time_of

MAX_RECORDS: Final = 10_000
MAX_TIME_MS: Final = 253_402_300_799_999
RecordForm: TypeAlias = Literal["base64", "text", "json"]
"""How keys and values are told; what does not fit the form is told in base64."""


class HeaderIn(In, frozen=True, kw_only=True):
    """A header of a record."""

    name: Annotated[str, Meta(max_length=32_767)]
    value: bytes | None = None


class RecordIn(In, frozen=True, kw_only=True):
    """A record: key and value in base64, as text, or as JSON."""

    key: bytes | None = None
    key_text: str | None = None
    value: bytes | None = None
    value_text: str | None = None
    value_json: msgspec.Raw | UnsetType = UNSET
    headers: Annotated[list[HeaderIn], Meta(max_length=1_000)] = msgspec.field(default_factory=list)
    timestamp: Time | None = None


class PlacedRecordIn(RecordIn, frozen=True, kw_only=True):
    """A record for a partition: the one that is named, or the one of its key."""

    partition: PartitionNumber | None = None


class HeaderOut(Out, frozen=True, kw_only=True):
    name: str
    value: bytes | None


class RecordOut(Out, frozen=True, kw_only=True):
    """A record of a partition."""

    offset: Int64
    timestamp: Time | None = None
    key: bytes | None = None
    key_text: str | None = None
    value: bytes | None = None
    value_text: str | None = None
    value_json: msgspec.Raw | UnsetType = UNSET
    headers: list[HeaderOut] = msgspec.field(default_factory=list)
    partition: int | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    """How often it has failed."""


def new_record(given: RecordIn, now_ms: int) -> NewRecord:
    """The record that somebody sent; without a time it gets the broker's."""
    keys = [one for one in (given.key, given.key_text) if one is not None]
    values = [one for one in (given.value, given.value_text) if one is not None]
    if not isinstance(given.value_json, UnsetType):
        values.append(bytes(given.value_json))
    if len(keys) > 1 or len(values) > 1:
        raise BadRequest("a record has one key and one value: in base64, as text or as JSON")
    return NewRecord(
        _raw(keys[0]) if keys else None,
        _raw(values[0]) if values else None,
        now_ms if given.timestamp is None else ms_of(given.timestamp),
        tuple((header.name, header.value) for header in given.headers),
    )


def told(
    record: Record, form: RecordForm, *, partition: int | UnsetType = UNSET, attempts: int | UnsetType = UNSET
) -> RecordOut:
    key, key_text = _texts(record.key, form != "base64")
    value, value_text = _texts(record.value, form == "text")
    value_json: msgspec.Raw | UnsetType = UNSET
    if form == "json" and value is not None and _is_json(value):
        value_json, value = msgspec.Raw(value), None
    shown = 0 <= record.timestamp <= MAX_TIME_MS and record.timestamp != NO_TIMESTAMP
    return RecordOut(
        offset=str(record.offset), timestamp=time_of(record.timestamp) if shown else None,
        key=key, key_text=key_text, value=value, value_text=value_text, value_json=value_json,
        headers=[HeaderOut(name=name, value=content) for name, content in record.headers],
        partition=partition, attempts=attempts,
    )  # fmt: skip


def _raw(content: bytes | str) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _texts(content: bytes | None, wanted: bool) -> tuple[bytes | None, str | None]:
    if content is None or not wanted:
        return content, None
    try:
        return None, content.decode()
    except UnicodeDecodeError:
        return content, None


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
