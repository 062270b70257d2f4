"""The page of differences: each reason with where it holds and what either says there."""

from collections.abc import Sequence
from pathlib import Path

from tests.golden.comparison.comparing import Difference
from tests.golden.comparison.reasons import REASONS, Reason, bare, reason_of
from tools.peers.kafka import VERSION

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kafka-differences.md"
_SHOWN = 4
_WIDEST = 60
_HEAD = f"""# Where Dray answers otherwise than Apache Kafka

Written by `python -m tests.golden.comparison`, which sends Dray the same requests as Apache Kafka {VERSION} and
compares every field with what Kafka answered; do not edit. `make test` fails when the page and a run differ, `make
test-peers` when Kafka answers otherwise than was recorded. Ids, addresses and times are masked; `null` is a null,
nothing between bars is an empty text.

"""


def page_of(differences: Sequence[Difference], shapes: int) -> str:
    """The whole page, about so many shapes."""
    differing = len({one.shape for one in differences})
    counts = f"{shapes} answers were compared; {shapes - differing} are the same in every field.\n"
    found: dict[str, list[Difference]] = {}
    for one in differences:
        reason = reason_of(one)
        found.setdefault(reason.why if reason else "NO REASON IS GIVEN", []).append(one)
    order = [reason.why for reason in REASONS if reason.why in found]
    order += [why for why in found if why not in order]
    return _HEAD + counts + "".join(_section(why, found[why]) for why in order)


def unneeded(differences: Sequence[Difference]) -> list[Reason]:
    """Reasons that no difference has."""
    needed = {id(reason_of(one)) for one in differences}
    return [reason for reason in REASONS if id(reason) not in needed]


def _section(why: str, differences: list[Difference]) -> str:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for one in differences:
        shapes = rows.setdefault((bare(one.field).rsplit(".", 1)[-1], _cell(one.kafka), _cell(one.dray)), [])
        if one.shape not in shapes:
            shapes.append(one.shape)
    lines = [
        f"| {_shapes(shapes)} | {field} | {theirs} | {ours} |" for (field, theirs, ours), shapes in sorted(rows.items())
    ]
    return "\n".join(
        ("", f"**{why}**", "", "| asked | field | Kafka | Dray |", "| --- | --- | --- | --- |", *lines, "")
    )


def _shapes(shapes: list[str]) -> str:
    shown = "; ".join(map(_cell, shapes[:_SHOWN]))
    return shown if len(shapes) <= _SHOWN else f"{shown}; and {len(shapes) - _SHOWN} more"


def _cell(text: str) -> str:
    short = text if len(text) <= _WIDEST else text[: _WIDEST - 4] + " ..."
    return short.replace("|", "\\|")
