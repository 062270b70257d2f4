"""Random Kafka messages, made by kio: an implementation that shares no line with ours."""

import dataclasses
import datetime
import io
import random
import uuid
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

import kio.schema.errors
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, PrimitiveTupleField, classify_field, is_optional

from dray.servers.kafka.codec import Codec, Schema
from dray.servers.kafka.messages.index import MODULES

DATA = ("request_header", "response_header", "consumer_protocol_subscription", "consumer_protocol_assignment")


class Case(NamedTuple):
    """One version of one message, in both implementations."""

    module: str
    role: str
    version: int
    codec: Codec
    file: str
    name: str

    @property
    def kio_type(self) -> type:
        """Imported when it is asked for: all of them were a fifth of collecting the tests."""
        return getattr(import_module(f"kio.schema.{self.module}.v{self.version}.{self.file}"), self.name)

    def __str__(self) -> str:
        return f"{self.module}-{self.role}-v{self.version}"


def schema(module: str) -> Schema:
    return import_module(f"dray.servers.kafka.messages.{module}").SCHEMA


def cases() -> Iterator[Case]:
    """Every message version that the generator emits."""
    for module in MODULES.values():
        api = schema(module)
        for role in ("request", "response"):
            codec = getattr(api, role)
            for version in codec.read:
                yield Case(module, role, version, codec, role, api.name + role.capitalize())
    for module in DATA:
        codec = import_module(f"dray.servers.kafka.messages.{module}").CODEC
        name = "".join(word.capitalize() for word in module.split("_"))
        for version in codec.read:
            file = "header" if module.endswith("header") else "data"
            yield Case(module, "data", version, codec, file, name)


def kio_encode(message: object) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def kio_decode(kio_type: type, raw: bytes) -> object:
    value, size = entity_reader(kio_type)(raw, 0)
    assert size == len(raw)
    return value


def random_message(kio_type: type, dice: random.Random, depth: int = 0) -> object:
    """A message with edge values, nulls, empty and long strings, and tagged fields both default and not."""
    values = {}
    for field in dataclasses.fields(kio_type):
        if "tag" in field.metadata and dice.random() < 0.4 and field.default is not dataclasses.MISSING:
            continue
        values[field.name] = _random_value(field, dice, depth)
    return kio_type(**values)


def _random_value(field: dataclasses.Field, dice: random.Random, depth: int) -> object:
    optional = is_optional(field) and "tag" not in field.metadata
    if optional and dice.random() < 0.25:
        return None
    shape = classify_field(field)
    if isinstance(shape, EntityField):
        return random_message(shape.type_, dice, depth + 1)
    count = dice.choice((0, 1, 1, 2, 3)) if depth < 2 else dice.choice((0, 1, 2))
    if isinstance(shape, EntityTupleField):
        return tuple(random_message(shape.type_, dice, depth + 1) for _ in range(count))
    kind = field.metadata["kafka_type"]
    if isinstance(shape, PrimitiveTupleField):
        return tuple(_random_primitive(kind, dice) for _ in range(count if dice.random() < 0.95 else 200))
    return _random_primitive(kind, dice)


_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def _random_primitive(kind: str, dice: random.Random) -> object:  # noqa: C901
    if kind in _BITS:
        top = 1 << (_BITS[kind] - 1)
        return dice.choice((0, 1, -1, top - 1, -top, dice.randrange(-top, top)))
    match kind:
        case "bool":
            return dice.random() < 0.5
        case "uint16":
            return dice.randrange(1 << 16)
        case "float64":
            return dice.uniform(-1e9, 1e9)
        case "string":
            size = dice.choice((0, 1, 5, 20, 126, 127, 128, 300))
            return "".join(dice.choice("az09._-é漢😀\0 ") for _ in range(size))
        case "bytes" | "records":
            return dice.randbytes(dice.choice((0, 1, 61, 126, 127, 128, 20_000)))
        case "uuid":
            return None if dice.random() < 0.2 else uuid.UUID(bytes=dice.randbytes(16), version=4)
        case "error_code":
            return dice.choice(list(kio.schema.errors.ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=dice.choice((0, 1, -1, 30_000, 2**31 - 1)))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(dice.randrange(2**31), datetime.UTC)
    raise AssertionError(kind)
