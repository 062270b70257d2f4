"""Records as people and programs write them: lines of text, TSV, or a JSON object a line. Pure.

What JSON says of a record can be written again and gives the same record:
bytes that are no text are told as {"base64": ".."}, and null as null.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.errors import Invalid
from dray.kafka_client.record import Incoming, Outgoing

_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_NAMED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
_TOLD: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_LARGEST_TIME: Final = 1 << 53


class BadRecord(Invalid):
    """A piece of the input is no record."""

    advice = "mend the input; what came before it may be stored"


class Encoding(Enum):
    """How bytes are written."""

    TEXT = "text"
    BASE64 = "base64"
    HEX = "hex"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """How one record is a piece of text, to be read or written."""

    encoding: Encoding = Encoding.TEXT
    separator: bytes | None = None
    """Between key and value; None: there is no key."""
    null: bytes | None = None
    """What stands for null. None: null is read nowhere, and written as nothing."""


def unescape(text: str) -> bytes:
    r"""A separator as a shell can give it: \n, \t, \r, \0, \xNN and \\ are what they are in C.

    Raises:
        BadRecord: another escape, or nothing at all.
    """

    def plain(found: re.Match[bytes]) -> bytes:
        name = found[1]
        if len(name) == 3:
            return bytes([int(name[1:], 16)])
        if name not in _NAMED:
            raise BadRecord(f"no escape is written \\{name.decode(errors='replace')}")
        return _NAMED[name]

    if not text:
        raise BadRecord("it may not be empty")
    return _ESCAPE.sub(plain, text.encode(errors="surrogateescape"))


def split(chunks: Iterable[bytes], delimiter: bytes, largest: int) -> Iterator[bytes]:
    """The pieces between delimiters; the last may lack its own. Holds one piece at a time.

    Raises:
        BadRecord: a piece is larger than any record may be.
    """
    rest = bytearray()
    for chunk in chunks:
        seen = max(0, len(rest) - len(delimiter) + 1)
        rest += chunk
        if rest.find(delimiter, seen) >= 0:
            *whole, last = bytes(rest).split(delimiter)
            rest = bytearray(last)
            yield from whole
        if len(rest) > largest:
            raise BadRecord("a record is too large", limit=largest)
    if rest:
        yield bytes(rest)


def read_line(line: bytes, form: LineForm) -> tuple[bytes | None, bytes | None]:
    """Key and value of a line.

    Raises:
        BadRecord: it has no separator, or is not encoded as was said.
    """
    if form.separator is None:
        return None, _read(line, form)
    key, found, value = line.partition(form.separator)
    if not found:
        raise BadRecord("no separator between key and value", separator=form.separator)
    return _read(key, form), _read(value, form)


def read_json(line: bytes, encoding: Encoding) -> Outgoing:
    """A record from its JSON object; where it was read from does not count, but for its partition.

    Raises:
        BadRecord: it is no JSON, or not of this shape.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRecord("this is no JSON") from error
    if not isinstance(document, dict):
        raise BadRecord("a record is a JSON object")
    if strange := sorted(document.keys() - set(_TOLD)):
        raise BadRecord(f"a record has no {strange[0]!r}: it has {', '.join(_TOLD)}")
    if "value" not in document:
        raise BadRecord("a record has a value; null for none")
    return Outgoing(
        key=_from_json("key", document.get("key"), encoding),
        value=_from_json("value", document["value"], encoding),
        headers=_headers(document.get("headers") or [], encoding),
        partition=_number(document, "partition", 0x7FFFFFFF),
        timestamp_ms=_number(document, "timestamp", _LARGEST_TIME),
    )


def write_line(record: Incoming, form: LineForm) -> bytes:
    """The value of a record, after its key where there is a separator."""
    value = _write(record.value, form)
    return value if form.separator is None else _write(record.key, form) + form.separator + value


def write_tsv(record: Incoming, form: LineForm) -> bytes:
    r"""A row: topic, partition, offset, timestamp, key, value, and a column for each header. Null is \N."""
    at = "-" if record.timestamp_ms is None else str(record.timestamp_ms)
    cells = [record.topic.encode(), b"%d" % record.partition, b"%d" % record.offset, at.encode()]
    cells += [_cell(record.key, form), _cell(record.value, form)]
    cells += [_escaped(name.encode()) + b"=" + _cell(value, form) for name, value in record.headers]
    return b"\t".join(cells)


def write_json(record: Incoming, form: LineForm) -> bytes:
    """An object that `read_json` takes."""
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _to_json(record.key, form.encoding),
        "value": _to_json(record.value, form.encoding),
        "headers": [{"key": name, "value": _to_json(value, form.encoding)} for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _read(piece: bytes, form: LineForm) -> bytes | None:
    return None if form.null is not None and piece == form.null else _decoded(piece, form.encoding)


def _write(content: bytes | None, form: LineForm) -> bytes:
    return form.null or b"" if content is None else _encoded(content, form.encoding)


def _decoded(piece: bytes, encoding: Encoding) -> bytes:
    try:
        match encoding:
            case Encoding.TEXT:
                return piece
            case Encoding.BASE64:
                return base64.b64decode(piece, validate=True)
            case Encoding.HEX:
                return binascii.unhexlify(piece)
    except ValueError as error:
        raise BadRecord(f"this is not {encoding.value}") from error


def _encoded(content: bytes, encoding: Encoding) -> bytes:
    match encoding:
        case Encoding.TEXT:
            return content
        case Encoding.BASE64:
            return base64.b64encode(content)
        case Encoding.HEX:
            return binascii.hexlify(content)


def _cell(content: bytes | None, form: LineForm) -> bytes:
    return b"\\N" if content is None else _escaped(_encoded(content, form.encoding))


def _escaped(content: bytes) -> bytes:
    for plain, written in ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r")):
        content = content.replace(plain, written)
    return content


def _to_json(content: bytes | None, encoding: Encoding) -> str | dict[str, str] | None:
    if content is None:
        return None
    if encoding is not Encoding.TEXT:
        return _encoded(content, encoding).decode()
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _from_json(name: str, told: object, encoding: Encoding) -> bytes | None:
    match told:
        case None:
            return None
        case str():
            return _decoded(_utf8(told), encoding)
        case {"base64": str(text), **others} if not others:
            return _decoded(_utf8(text), Encoding.BASE64)
        case {"hex": str(text), **others} if not others:
            return _decoded(_utf8(text), Encoding.HEX)
    raise BadRecord(f'{name} is a string, null, {{"base64": ".."}} or {{"hex": ".."}}')


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRecord("half a character: this is no Unicode") from error


def _headers(told: object, encoding: Encoding) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(told, list):
        raise BadRecord("headers are a list")
    found = []
    for one in told:
        match one:
            case {"key": str(name), "value": value, **others} if not others:
                _utf8(name)
                found.append((name, _from_json("the value of a header", value, encoding)))
            case _:
                raise BadRecord('a header is {"key": "..", "value": ".."}')
    return tuple(found)


def _number(document: Mapping[str, object], name: str, largest: int) -> int | None:
    told = document.get(name)
    if told is None:
        return None
    if not isinstance(told, int) or isinstance(told, bool) or not 0 <= told <= largest:
        raise BadRecord(f"{name} is a number from 0 to {largest}")
    return told
