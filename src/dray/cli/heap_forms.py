"""Heaps as `dray` and `drayd admin` take and show them: names, configs, payloads."""

import json
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Annotated, Final, TypeAlias

import typer

from dray.cli.pairs import pairs
from dray.config import parse_duration
from dray.errors import Invalid


class HeapModeName(Enum):
    MIN = "min"
    MAX = "max"


class MessageState(Enum):
    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"
    DEAD = "dead"


HeapName: TypeAlias = Annotated[str, typer.Argument(metavar="HEAP", help="The name of the heap.")]
HeapConfigs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A config of the heap; as often as needed."),
]
LetterIds: TypeAlias = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="This one; as often as needed.")
]
All: TypeAlias = Annotated[bool, typer.Option("--all", help="All that are dead now.")]
HeapModeOption: TypeAlias = Annotated[
    HeapModeName, typer.Option("--mode", help="Which priority comes first: it never changes.")
]
Labels: TypeAlias = Annotated[int, typer.Option("--partitions", "-p", min=1, help="Labels that keys are spread over.")]
InState: TypeAlias = Annotated[MessageState, typer.Option("--state", help="Messages in this state.")]
AtMost: TypeAlias = Annotated[int, typer.Option("-n", min=1, max=10_000, help="At most so many.")]
PerSecond: TypeAlias = Annotated[int, typer.Option("--per-second", min=0, help="At most so many a second; 0: at once.")]
KeepTime: TypeAlias = Annotated[bool, typer.Option("--keep-time", help="In the place that they had, not as new ones.")]
NewPriority: TypeAlias = Annotated[int | None, typer.Option("--priority", help="With this priority.")]
_SPANS: Final = (
    "visibility_timeout", "max_lease", "backoff_base", "backoff_cap", "retention", "dedup_window", "message_ttl",
)  # fmt: skip
_NUMBERS: Final = (
    "k", "max_retries", "max_payload_bytes", "max_messages", "max_inflight", "max_leases_per_consumer",
    "max_dedup_keys",
)  # fmt: skip
_SWITCHES: Final = ("jitter", "dead_letters", "json", "compression", "paused")
_TEXTS: Final = ("history",)
_OFF: Final = "off"
_WORDS: Final = {"true": True, "false": False}


def parse_heap_configs(
    texts: Sequence[str] | None, option: str = "--config"
) -> dict[str, int | bool | str | timedelta]:
    """What the configs of a heap say; a key or a value that makes no sense is wrong usage."""
    found: dict[str, int | bool | str | timedelta] = {}
    for key, value in pairs(option, texts).items():
        name = key.replace("-", "_").replace(".", "_")
        try:
            found[name] = _value(name, value)
        except (ValueError, Invalid) as bad:
            raise typer.BadParameter(f"{key}: {bad}", param_hint=option) from bad
    return found


def _value(name: str, value: str) -> int | bool | str | timedelta:
    if name in _TEXTS:
        return "" if value == _OFF else value
    if name in _SPANS:
        return parse_duration(value)
    if name in _NUMBERS:
        return int(value)
    if name in _SWITCHES:
        if value not in _WORDS:
            raise Invalid("expected true or false")
        return _WORDS[value]
    raise Invalid(f"no such config; there are {', '.join(sorted((*_SPANS, *_NUMBERS, *_SWITCHES, *_TEXTS)))}")


def text_of(payload: object) -> str:
    """A payload on one line."""
    if isinstance(payload, bytes):
        try:
            return payload.decode()
        except UnicodeDecodeError:
            return "0x" + payload.hex()
    return json.dumps(payload, ensure_ascii=False)


def chosen_letters(ids: list[str] | None, everything: bool) -> list[str] | None:
    """None: all of them."""
    if everything == bool(ids):
        raise typer.BadParameter("name messages, or say --all", param_hint="--id")
    return None if everything else ids
