"""What Apache Kafka answered, kept: a file for each API, in it a line for each shape."""

import json
from collections.abc import Collection
from pathlib import Path

from tests.golden.comparison.comparing import Answers, Played
from tests.golden.comparison.rendering import Tree

DIRECTORY = Path(__file__).parents[1] / "recorded"


def recorded() -> Answers:
    """Everything that was recorded."""
    kept: dict[str, Tree] = {}
    for file in sorted(DIRECTORY.glob("*.json")):
        kept |= json.loads(file.read_text(encoding="utf-8"))
    return kept


def among(answers: Answers, shapes: Collection[str]) -> Answers:
    return {shape: tree for shape, tree in answers.items() if shape in shapes}


def record(played: Played) -> None:
    """Keep these answers and no others."""
    DIRECTORY.mkdir(exist_ok=True)
    for old in DIRECTORY.glob("*.json"):
        old.unlink()
    for api in sorted(set(played.apis.values())):
        lines = [
            f"{json.dumps(shape)}: {json.dumps(played.answers[shape], separators=(',', ':'))}"
            for shape, asks in played.apis.items()
            if asks == api
        ]
        (DIRECTORY / f"{api}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
