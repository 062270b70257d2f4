"""A server plays the scenes; what differs between two that did, field by field."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dray.clock import SystemClock
from dray.ids import SystemEntropy
from tests.golden.comparison.rendering import Tree, apis_of_dray
from tests.golden.comparison.talking import Scene, Talk

_HOUR_MS = 3_600_000
_MISSING = "nothing"
_MANY = 8
Answers = Mapping[str, Tree]
"""By shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a server answered."""

    answers: Answers
    apis: Mapping[str, str]
    """Which API each shape asks."""
    asked: set[tuple[int, int]]
    """Keys and versions of the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field of an answer that is not what Kafka says."""

    shape: str
    field: str
    kafka: str
    dray: str


async def play(address: str, scenes: Sequence[Scene]) -> Played:
    """Ask a server everything, with names and times of this run."""
    now_ms = SystemClock().wall_ms() - _HOUR_MS
    prefix = f"run-{SystemEntropy().random_bytes(4).hex()}-"
    async with Talk(address, prefix=prefix, now_ms=now_ms) as talk:
        for scene in scenes:
            await talk.play(scene)
    return Played(answers=talk.answers, apis=talk.apis, asked=talk.asked)


def differences(kafka: Answers, dray: Answers) -> list[Difference]:
    """In the order of the shapes."""
    assert kafka.keys() == dray.keys(), kafka.keys() ^ dray.keys()
    return [
        Difference(shape=shape, field=field or "the answer", kafka=_text(theirs), dray=_text(ours))
        for shape in dray
        for field, theirs, ours in _differing(apis_of_dray(kafka[shape]), apis_of_dray(dray[shape]), "")
    ]


def _differing(theirs: Tree, ours: Tree, at: str) -> Iterator[tuple[str, Tree, Tree]]:
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs and ours:
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            yield from _differing(theirs.get(name, _MISSING), ours.get(name, _MISSING), f"{at}.{name}" if at else name)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _differing(one, other, f"{at}[{number}]")
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield at, f"{len(theirs)} of them", f"{len(ours)} of them"
    elif theirs != ours:
        yield at, theirs, ours


def _text(tree: Tree) -> str:
    if isinstance(tree, dict) and len(tree) > _MANY:
        return f"{len(tree)} of them"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{name}: {_text(value)}" for name, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_text, tree)) + "]"
    return "null" if tree is None else str(tree)
