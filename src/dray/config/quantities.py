"""Durations and sizes as people write them: `250ms`, `64MiB`.

A duration needs a unit, for nobody can tell seconds from milliseconds in a
bare number; a bare size is in bytes. Arithmetic is exact: no float decides
whether two settings are equal.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

DURATION_PATTERN: Final = r"^(0|[0-9]+(\.[0-9]+)?\s*(us|ms|s|m|h|d))$"
SIZE_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?\s*([kKmMgGtT][iI]?[bB]|[bB])?$"

_MICROSECONDS: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_BYTES: Final = {
    "TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10,
    "TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3,
    "B": 1,
}  # fmt: skip
_NUMBER: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", re.ASCII)
_MAX_BYTES: Final = (1 << 63) - 1


def parse_duration(value: object) -> timedelta:
    """A duration from `30s`, `250ms`, `1.5h`; 0 needs no unit.

    Raises:
        ValueError: it is not one; the message says what is.
    """
    amount = value if isinstance(value, timedelta) else timedelta(microseconds=_duration_us(value))
    if amount < timedelta(0):
        raise ValueError('expected a duration of zero or more, such as "30s"')
    return amount


def _duration_us(value: object) -> int:
    wanted = 'expected a duration with its unit (us, ms, s, m, h, d), such as "30s" or "250ms"'
    if value in (0, "0") and not isinstance(value, bool):
        return 0
    if not isinstance(value, str):
        raise ValueError(wanted)
    whole = _whole(value, {unit.lower(): size for unit, size in _MICROSECONDS.items()})
    if whole is None:
        raise ValueError(wanted)
    if whole > timedelta.max // timedelta(microseconds=1):
        raise ValueError("expected a shorter duration")
    return whole


def format_duration(value: timedelta) -> str:
    """The shortest exact way to write it."""
    amount = value // timedelta(microseconds=1)
    return "0s" if amount == 0 else _shortest(amount, _MICROSECONDS)


class Size(int):
    """A number of bytes that is written and shown with its unit: `Size("64MiB")`."""

    def __new__(cls, value: int | str) -> "Size":
        """The size that is meant.

        Raises:
            ValueError: it is not one; the message says what is.
        """
        amount = _whole(value, {"": 1, **{unit.lower(): size for unit, size in _BYTES.items()}})
        if amount is None:
            raise ValueError('expected a size such as "64MiB", "4MB" or a number of bytes')
        if not 0 <= amount <= _MAX_BYTES:
            raise ValueError("expected a size from 0 to 8EiB")
        return super().__new__(cls, amount)

    def __str__(self) -> str:
        return "0B" if self == 0 else _shortest(int(self), _BYTES)

    def __repr__(self) -> str:
        return f'Size("{self}")'

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer", "minimum": 0}]}


def _whole(value: object, units: Mapping[str, int]) -> int | None:
    """`value` in the smallest unit, or None if it is no number of these units, or no whole one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        return None
    exact = Fraction(Decimal(match[1])) * units[match[2].lower()]
    return int(exact) if exact.denominator == 1 else None


def _shortest(amount: int, units: Mapping[str, int]) -> str:
    exact = [(amount // size, unit) for unit, size in units.items() if amount % size == 0]
    number, unit = min(exact, key=lambda pair: pair[0])
    return f"{number}{unit}"
