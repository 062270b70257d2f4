"""What the commands about heaps have in common: a broker to ask over gRPC, configs, and messages as rows."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Final, TypeAlias, TypeVar, cast

import typer

from dray.cli.asking._connecting import pairs
from dray.cli.profiles import environment
from dray.client import Client, HeapOptions, Peeked
from dray.client.client import ADDRESS
from dray.config import parse_duration
from dray.errors import Invalid

T = TypeVar("T")
_CONNECTION: Final = "Which cluster"
GrpcEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--grpc",
        "-g",
        metavar="HOST:PORT",
        help="Where a broker serves heaps, or several with commas; or DRAY_GRPC.",
        show_default=ADDRESS,
        rich_help_panel=_CONNECTION,
    ),
]
HeapName: TypeAlias = Annotated[str, typer.Argument(metavar="HEAP", help="The name of the heap.")]
HeapConfigs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A config of the heap; as often as needed."),
]
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


def ask_heaps(endpoint: str | None, question: Callable[[Client], Coroutine[object, object, T]]) -> T:
    """Connect, ask, and leave."""
    environ = environment()
    asked = endpoint or environ.get("DRAY_GRPC") or ADDRESS

    async def run() -> T:
        async with Client([one.strip() for one in asked.split(",")], api_key=environ.get("DRAY_API_KEY")) as client:
            return await question(client)

    return asyncio.run(run())


def options_of(texts: Sequence[str] | None) -> HeapOptions:
    """What `--config` says; a key or a value that makes no sense is wrong usage."""
    found: dict[str, object] = {}
    for key, value in pairs("--config", texts).items():
        name = key.replace("-", "_").replace(".", "_")
        try:
            found[name] = _value(name, value)
        except (ValueError, Invalid) as bad:
            raise typer.BadParameter(f"{key}: {bad}", param_hint="--config") from bad
    return cast("HeapOptions", found)


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


def document_of(message: Peeked) -> Mapping[str, object]:
    """A message that was looked at, for programs."""
    return {
        "id": message.id,
        "state": message.state.name.lower(),
        "priority": message.priority,
        "attempts": message.attempts,
        "max_retries": message.max_retries,
        "enqueued": message.enqueued_at.isoformat(),
        "holder": message.holder,
        "error": message.last_error,
        "headers": dict(message.headers),
        "payload": text_of(message.payload),
    }
