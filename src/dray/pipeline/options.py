"""The options of the source, as Spark gives them: text by lower-cased name.

They are those of Spark's Kafka source where both have one, and mean the same:
a time comes before times by partition, and those before offsets. An unknown
name is refused, because an option that is silently ignored reads the wrong
records.

A table of Spark's catalog (`CREATE TABLE .. USING dray`) gives more than its
options: some properties of its own, each option again as `option.NAME`, and
its path as a URI.
"""

import difflib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from dray.errors import Invalid
from dray.log.urls import SHARED_FORMS, SHARED_SCHEMES, PasswordInUrl, SharedLogs, parse_log_url
from dray.pipeline.errors import BadOption

EARLIEST: Final = -2
LATEST: Final = -1
MAX_PARTITIONS: Final = 100_000
MAX_OFFSET: Final = 2**63 - 1

KNOWN: Final = (
    "path", "url", "log", "objects", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "failOnDataLoss",
    "pinSeconds",
)  # fmt: skip
WHERE: Final = frozenset({"path", "url", "log", "objects"})
"""Those that say where, not what."""
_NAMES: Final = {name.lower(): name for name in KNOWN}
_OF_A_TABLE: Final = frozenset(
    ("collation", "comment", "external", "is_managed_location", "location", "owner", "provider")
)
"""Properties that Spark gives every table of its catalog."""
_COPY: Final = "option."
_ADDRESSES: Final = ("http://", "https://")

ByPartition: TypeAlias = dict[str, dict[int, int]]
"""Numbers by topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """A place in each partition, by offset; a bare number is EARLIEST or LATEST."""

    option: str
    given: int | ByPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A place in each partition: the first record that is not older."""

    option: str
    given: int | ByPartition


Place: TypeAlias = Offsets | Times


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is to be read."""

    path: str
    """The data directory; empty where a broker is asked, or a log that brokers share."""
    url: str | None
    """Of the broker that is asked to plan: its HTTP port."""
    log: SharedLogs | None
    """That brokers of several machines share."""
    objects: str | None
    """Where the records are, if not in the data directory."""
    topics: "dict[str, tuple[int, ...] | None] | re.Pattern[str]"
    """The partitions of each topic, None means all; or what the names of topics match."""
    starting: Place
    ending: Place
    latest_if_no_match: bool
    """Whether a partition without a record as young as its starting time is begun at its end."""
    min_partitions: int
    max_records: int | None
    """Of a task."""
    include_headers: bool
    fail_on_data_loss: bool
    pin_seconds: int
    """A read may take this long: for so long its objects are kept."""
    asked: Mapping[str, str]
    """The options as they were given, but for those that say where: what a broker is told that plans."""


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Check and read all options.

    Raises:
        BadOption: names the option and what would be right.
    """
    options = _own(given)
    where = _where(options)
    return ReadOptions(
        path=where.path,
        url=where.url,
        log=where.log,
        objects=options.get("objects"),
        topics=_topics(options),
        starting=_place(options, "starting", EARLIEST),
        ending=_place(options, "ending", LATEST),
        latest_if_no_match=_latest_if_no_match(options),
        min_partitions=_number(options, "minPartitions", 1, MAX_PARTITIONS, 1),
        max_records=_number(options, "maxRecordsPerPartition", 1, MAX_OFFSET, 0) or None,
        include_headers=_flag(options, "includeHeaders", default=False),
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        pin_seconds=_number(options, "pinSeconds", 10, 7 * 86_400, 86_400),
        asked={name: value for name, value in options.items() if name not in WHERE},
    )


def is_table(given: Mapping[str, str]) -> bool:
    """Whether these are the options of `CREATE TABLE`."""
    return "provider" in {name.lower() for name in given}


def pack_options(given: Mapping[str, str]) -> str:
    """The options of a table as text, with a path that means the same from everywhere."""
    own = _own(given)
    where = _where(own)
    kept = {"path": str(Path(where.path).absolute())} if where.path else {}
    kept |= {} if where.url is None else {"url": where.url}
    kept |= {} if where.log is None else {"log": str(where.log)}
    return msgspec.json.encode({name: text for name, text in own.items() if name != "path"} | kept).decode()


def unpack_options(text: str) -> dict[str, str]:
    return msgspec.json.decode(text, type=dict[str, str])


def _own(given: Mapping[str, str]) -> dict[str, str]:
    """The options of the source by lower-cased name, without what Spark adds for a table."""
    options = {name.lower(): value for name, value in given.items()}
    own = {}
    for name, value in options.items():
        if name in _NAMES:
            own[name] = value
        elif name in _OF_A_TABLE:
            continue
        elif not name.startswith(_COPY) or name.removeprefix(_COPY) not in options:
            raise _unknown(name)
    return own


def _unknown(name: str) -> BadOption:
    if name.startswith("kafka."):
        return BadOption("no broker is asked, so no option of a Kafka client is taken: give path", option=name)
    nearest = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.0)
    return BadOption("no such option", option=name, nearest=_NAMES[nearest[0]], known=", ".join(KNOWN))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """One of three."""

    path: str = ""
    url: str | None = None
    log: SharedLogs | None = None


def _where(options: Mapping[str, str]) -> _Where:
    """The data directory, the address of a broker, or the log of a cluster."""
    path, url, log = options.get("path", ""), options.get("url"), options.get("log")
    if url is None and path.startswith(_ADDRESSES):
        path, url = "", path
    if log is None and path.startswith(SHARED_SCHEMES):
        path, log = "", path
    if sum(map(bool, (path, url, log))) > 1:
        raise BadOption(
            "give one of path, a data directory, url, the HTTP port of a broker, and log, what brokers of several "
            "machines share"
        )
    if log:
        return _Where(log=_shared_log(log, options))
    if url is not None:
        if not url.startswith(_ADDRESSES):
            raise BadOption(
                "it is the HTTP port of a broker, such as http://127.0.0.1:7433", option="url", given=url[:200]
            )
        return _Where(url=url)
    if not path:
        raise BadOption(
            "path is missing: the data directory, as in drayd dev --data DIR; or give url, the HTTP port of a broker, "
            "or log and objects, as log.url and objects.url of brokers that share them"
        )
    for scheme in ("file:///", "file:/"):  # as Spark reads and writes them: nothing in them is escaped
        if path.startswith(scheme):
            return _Where(path=path.removeprefix(scheme.removesuffix("/")))
    return _Where(path=path)


def _shared_log(text: str, options: Mapping[str, str]) -> SharedLogs:
    """The text is not shown where it is refused: somebody may have put a password into it."""
    try:
        found = parse_log_url(text)
    except PasswordInUrl as error:
        raise BadOption(str(error), option="log") from None
    except Invalid:
        found = None
    if not isinstance(found, SharedLogs):
        raise BadOption(f"it is what log.url of the brokers is, one of {SHARED_FORMS}", option="log")
    if not options.get("objects"):
        raise BadOption("objects is missing: where the brokers keep records, their objects.url", option="objects")
    return found


def _topics(options: Mapping[str, str]) -> "dict[str, tuple[int, ...] | None] | re.Pattern[str]":
    if sum(name in options for name in ("subscribe", "subscribepattern", "assign")) != 1:
        raise BadOption("give one of subscribe (topic,topic), subscribePattern and assign ({topic:[partitions]})")
    if "subscribepattern" in options:
        return _pattern(options["subscribepattern"])
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


def _pattern(text: str) -> "re.Pattern[str]":
    """Python's expressions are Java's as far as names of topics go; where a set means something else it warns."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            return re.compile(text)
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise BadOption(
            "subscribePattern is a regular expression that Python knows, such as orders-.*", given=text[:200],
            reason=error,
        ) from error  # fmt: skip


def _place(options: Mapping[str, str], side: str, default: int) -> Place:
    """The time comes first, then times by partition, then offsets, as in the Kafka source."""
    name = f"{side}Timestamp"
    if name.lower() in options:
        return Times(option=name, given=_number(options, name, 0, MAX_OFFSET, 0))
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in options:
        return Times(option=name, given=_by_partition(options[name.lower()], name))
    name = f"{side}Offsets"
    return Offsets(option=name, given=_offsets(options, name, default))


def _offsets(options: Mapping[str, str], name: str, default: int) -> int | ByPartition:
    text = options.get(name.lower(), "").strip()
    words = {"": default, "earliest": EARLIEST, "latest": LATEST}
    word = words.get(text.lower())
    found = {} if word is not None else _by_partition(text, name, least=EARLIEST)
    wrong = EARLIEST if default == LATEST else LATEST
    if word == wrong or any(wrong in numbers.values() for numbers in found.values()):
        raise BadOption(
            "a batch begins at earliest (-2) and ends at latest (-1), or at offsets", option=name, given=text[:200]
        )
    return found if word is None else word


def _latest_if_no_match(options: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    strategy = options.get(name.lower(), "error").lower()
    if strategy not in ("error", "latest"):
        raise BadOption("it is error or latest", option=name, given=strategy[:50])
    return strategy == "latest"


def _by_partition(text: str, name: str, least: int = 0) -> ByPartition:
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.DecodeError as error:
        raise BadOption(
            'it is JSON such as {"orders":{"0":23,"1":-2}}', option=name, given=text[:200], reason=error
        ) from error
    for topic, numbers in found.items():
        for partition, number in numbers.items():
            if partition < 0 or not least <= number <= MAX_OFFSET:
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
