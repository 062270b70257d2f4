"""The options of the source, as Spark gives them: text by lower-cased name.

They are those of Spark's Kafka source where both have one. An unknown name is
refused, because an option that is silently ignored reads the wrong records.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from dray.pipeline.errors import BadOption

EARLIEST: Final = -2
LATEST: Final = -1
MAX_PARTITIONS: Final = 100_000

KNOWN: Final = (
    "path", "objects", "subscribe", "assign", "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp",
    "minPartitions", "includeHeaders", "failOnDataLoss", "pinSeconds",
)  # fmt: skip
_NAMES: Final = {name.lower(): name for name in KNOWN}

ByPartition: TypeAlias = dict[str, dict[int, int]]
"""Numbers by topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is to be read."""

    path: str
    """The data directory."""
    objects: str | None
    """Where the records are, if not in the data directory."""
    topics: dict[str, tuple[int, ...] | None]
    """The partitions of each topic; None means all."""
    starting: int | ByPartition
    ending: int | ByPartition
    starting_times: ByPartition | None
    min_partitions: int
    include_headers: bool
    fail_on_data_loss: bool
    pin_seconds: int
    """A read may take this long; its objects are let go sooner if the driver ends."""


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Check and read all options.

    Raises:
        BadOption: names the option and what would be right.
    """
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in _NAMES:
            raise _unknown(name)
    starting_times = options.get("startingoffsetsbytimestamp")
    if starting_times is not None and "startingoffsets" in options:
        raise BadOption("give startingOffsets or startingOffsetsByTimestamp, not both")
    return ReadOptions(
        path=_path(options),
        objects=options.get("objects"),
        topics=_topics(options),
        starting=_offsets(options, "startingOffsets", EARLIEST),
        ending=_offsets(options, "endingOffsets", LATEST),
        starting_times=None if starting_times is None else _by_partition(starting_times, "startingOffsetsByTimestamp"),
        min_partitions=_number(options, "minPartitions", 1, MAX_PARTITIONS, 1),
        include_headers=_flag(options, "includeHeaders", default=False),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        pin_seconds=_number(options, "pinSeconds", 10, 7 * 86_400, 86_400),
    )


def _unknown(name: str) -> BadOption:
    if name.startswith("kafka."):
        return BadOption("no broker is asked, so no option of a Kafka client is taken: give path", option=name)
    nearest = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.0)
    return BadOption("no such option", option=name, nearest=_NAMES[nearest[0]], known=", ".join(KNOWN))


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path", "")
    if not path:
        raise BadOption("path is missing: the data directory, as in drayd dev --data DIR")
    return path.removeprefix("file://") if path.startswith("file:///") else path


def _topics(options: Mapping[str, str]) -> dict[str, tuple[int, ...] | None]:
    if ("subscribe" in options) == ("assign" in options):
        raise BadOption("give subscribe (topic,topic) or assign ({topic:[partitions]}): one of them, not both")
    if "subscribe" in options:
        names = [name.strip() for name in options["subscribe"].split(",")]
        if not all(names):
            raise BadOption("subscribe is a list of topics with commas between them", subscribe=options["subscribe"])
        return dict.fromkeys(names)
    try:
        assigned = msgspec.json.decode(options["assign"], type=dict[str, list[int]])
    except msgspec.DecodeError as error:
        raise BadOption('assign is JSON such as {"orders":[0,1]}', reason=error) from error
    if not assigned or not all(assigned.values()):
        raise BadOption('assign names no partition: it is JSON such as {"orders":[0,1]}')
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in assigned.items()}


def _offsets(options: Mapping[str, str], name: str, default: int) -> int | ByPartition:
    text = options.get(name.lower(), "").strip()
    words = {"": default, "earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        word = words[text.lower()]
        if word != default:
            raise BadOption("a batch begins at earliest and ends at latest, or at offsets", option=name, given=text)
        return word
    return _by_partition(text, name, least=EARLIEST)


def _by_partition(text: str, name: str, least: int = 0) -> ByPartition:
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.DecodeError as error:
        raise BadOption(
            'it is JSON such as {"orders":{"0":23,"1":-2}}', option=name, given=text[:200], reason=error
        ) from error
    for topic, numbers in found.items():
        for partition, number in numbers.items():
            if partition < 0 or number < least:
                raise BadOption(
                    "not a partition, or not a number it can begin at", option=name, topic=topic,
                    partition=partition, number=number,
                )  # fmt: skip
    return found


def _number(options: Mapping[str, str], name: str, least: int, most: int, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise BadOption(f"a whole number from {least} to {most}", option=name, given=text[:50])
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise BadOption("it is true or false", option=name, given=text[:50])
    return text.lower() == "true"
