"""Sections: what a package declares, and what can be told about it without a value."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Final, TypeAlias, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import CoreSchema, core_schema

from dray.config.quantities import DURATION_PATTERN, Size, format_duration, parse_duration

Secret: TypeAlias = SecretStr
"""A value that is never shown (CF1). `<key>_file` names a file that holds it."""

Shown: TypeAlias = "str | int | float | bool | list[Shown] | dict[str, Shown] | None"
HIDDEN: Final = "***"
FILE_SUFFIX: Final = "_file"
_MODE: Final[JsonSchemaMode] = "validation"


class Section(BaseModel):
    """Settings of one package: frozen, unknown keys forbidden. The string behind a field describes it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
        hide_input_in_errors=True,  # CF1
    )

    @field_validator("*", mode="before")
    @classmethod
    def _durations_have_units(cls, value: object, info: ValidationInfo[None]) -> object:
        kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
        return parse_duration(value) if timedelta in kinds and value is not None else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        for name, field in cls.model_fields.items():
            if SecretStr in _kinds(field.annotation):
                properties[name + FILE_SUFFIX] = {"type": "string", "description": f"A file that holds `{name}`."}
        return described


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One setting, by its full key."""

    key: str
    description: str
    secret: bool
    optional: bool
    structured: bool
    """A list or a mapping: its text form is YAML."""


def leaves(sections: Mapping[str, type[Section]]) -> dict[str, Leaf]:
    """Every setting of these sections, in the order of declaration.

    Raises:
        TypeError: a section is named twice, or the name of a setting is taken.
    """
    if len(set(sections.values())) != len(sections):
        raise TypeError("a section is registered under two names")
    found: dict[str, Leaf] = {}
    for name, kind in sections.items():
        for leaf in _leaves_of(name, kind):
            found[leaf.key] = leaf
    for leaf in found.values():
        if leaf.secret and leaf.key + FILE_SUFFIX in found:
            raise TypeError(f"{leaf.key}{FILE_SUFFIX} is the file of a secret and cannot be a setting")
    return found


def _leaves_of(prefix: str, kind: type[Section]) -> Iterator[Leaf]:
    for name, field in kind.model_fields.items():
        key = f"{prefix}.{name}"
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, Section):
            yield from _leaves_of(key, nested)
        else:
            yield _leaf(key, field)


def _leaf(key: str, field: FieldInfo) -> Leaf:
    kinds = _kinds(field.annotation)
    return Leaf(
        key=key,
        description=inspect.cleandoc(field.description or ""),
        secret=SecretStr in kinds,
        optional=NoneType in kinds,
        structured=any(
            isinstance(kind, type) and issubclass(kind, list | tuple | set | frozenset | Mapping | BaseModel)
            for kind in kinds
        ),
    )


def _kinds(annotation: object) -> set[object]:
    """The plain types that an annotation allows: `list[str] | None` gives list and NoneType."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return {kind for argument in get_args(annotation) for kind in _kinds(argument)}
    return {origin or annotation}


def shown(value: object) -> Shown:
    """A value as it is written in a file; a secret is hidden (CF1)."""
    match value:
        case SecretStr():
            return HIDDEN
        case timedelta():
            return format_duration(value)
        case Size():
            return str(value)
        case Enum():
            return shown(value.value)
        case None | str() | bool() | int() | float():
            return value
        case BaseModel():
            return {name: shown(getattr(value, name)) for name in type(value).model_fields}
        case Mapping():
            return {str(name): shown(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [shown(item) for item in value]
        case _:
            return str(value)


class _Schema(GenerateJsonSchema):
    """JSON Schema with durations as the loader takes them, not as ISO 8601."""

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"const": 0}]}

    def encode_default(self, dft: object) -> object:
        return shown(dft)


def schema(sections: Mapping[str, type[Section]]) -> dict[str, object]:
    """The JSON Schema of a configuration file with these sections."""
    wanted = [(kind, _MODE) for kind in sections.values()]
    references, definitions = models_json_schema(wanted, schema_generator=_Schema)
    return {
        "$schema": _Schema.schema_dialect,
        "title": "drayd configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: references[kind, _MODE] for name, kind in sections.items()},
        **definitions,
    }
