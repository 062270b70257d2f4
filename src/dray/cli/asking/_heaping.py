"""What the commands about heaps have in common: a broker to ask over gRPC, configs, and messages as rows."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Final, TypeAlias, TypeVar, cast

import typer

from dray.cli.heap_forms import HeapConfigs as HeapConfigs
from dray.cli.heap_forms import HeapName as HeapName
from dray.cli.heap_forms import parse_heap_configs
from dray.cli.heap_forms import text_of as text_of
from dray.cli.profiles import environment
from dray.client import Client, HeapOptions, Peeked
from dray.client.client import ADDRESS

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
    return cast("HeapOptions", parse_heap_configs(texts))


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
