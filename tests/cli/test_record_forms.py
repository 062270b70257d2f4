"""Records as text, TSV and JSON: whatever is in them comes back, and what is no record is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.cli.record_forms import (
    BadRecord,
    Encoding,
    LineForm,
    read_json,
    read_line,
    split,
    unescape,
    write_json,
    write_line,
    write_tsv,
)
from dray.kafka_client.record import Incoming

CONTENT = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
NAMES = st.text(max_size=8)


def incoming(key=None, value=None, headers=()) -> Incoming:
    return Incoming(
        topic="t", partition=3, offset=7, timestamp_ms=1_700_000_000_000, key=key, value=value, headers=tuple(headers)
    )


@given(CONTENT, CONTENT, st.lists(st.tuples(NAMES, CONTENT), max_size=4), st.sampled_from(Encoding))
def test_any_record_comes_back_from_json(key, value, headers, encoding):
    line = write_json(incoming(key, value, headers), LineForm(encoding=encoding))
    assert b"\n" not in line
    record = read_json(line, encoding)
    assert (record.key, record.value, record.headers) == (key, value, tuple(headers))
    assert (record.partition, record.timestamp_ms) == (3, 1_700_000_000_000)


@given(st.binary(max_size=40), st.binary(max_size=40), st.sampled_from([Encoding.BASE64, Encoding.HEX]))
def test_any_bytes_come_back_from_an_encoded_line(key, value, encoding):
    form = LineForm(encoding=encoding, separator=b":", null=b"NULL")
    assert read_line(write_line(incoming(key, value), form), form) == (key, value)
    assert read_line(write_line(incoming(None, None), form), form) == (None, None)


@given(CONTENT, CONTENT, st.lists(st.tuples(NAMES, CONTENT), max_size=3))
def test_a_row_of_tsv_is_one_line_of_known_columns(key, value, headers):
    row = write_tsv(incoming(key, value, headers), LineForm())
    assert b"\n" not in row
    assert b"\r" not in row
    cells = row.split(b"\t")
    assert len(cells) == 6 + len(headers)
    assert (cells[4] == b"\\N") == (key is None)
    assert (cells[5] == b"\\N") == (value is None)


@given(st.lists(st.binary(max_size=30)), st.sampled_from([b"\n", b"\0", b"ab", b"\r\n"]), st.integers(1, 7))
def test_pieces_are_found_however_the_input_is_cut(pieces, delimiter, size):
    whole = b"".join(piece + delimiter for piece in pieces)
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    # What a delimiter ends may end with its beginning: only the bytes tell.
    expected = whole.split(delimiter)
    assert list(split(chunks, delimiter, 1000)) == (expected[:-1] if not expected[-1] else expected)


def test_the_last_piece_needs_no_end_and_no_piece_is_too_large():
    assert list(split([b"a\n\nb"], b"\n", 10)) == [b"a", b"", b"b"]
    assert list(split([], b"\n", 10)) == []
    with pytest.raises(BadRecord, match="too large"):
        list(split([b"x" * 6, b"x" * 6], b"\n", 10))


@pytest.mark.parametrize(
    ("text", "expected"), [(r"\t", b"\t"), (r"\x00\xff", b"\0\xff"), (r"\\n", b"\\n"), ("ä|", "ä|".encode())]
)
def test_separators_are_written_like_in_c(text, expected):
    assert unescape(text) == expected


@pytest.mark.parametrize("text", ["", r"\q", "\\", r"\x1"])
def test_no_other_escapes(text):
    with pytest.raises(BadRecord):
        unescape(text)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "no JSON"), (b"[1]", "a JSON object"), (b"{}", "has a value"), (b'{"value":1}', "value is a string"),
        (b'{"valeu":"x"}', "no 'valeu'"), (b'{"value":{"base64":"?"}}', "not base64"),
        (b'{"value":{"base64":"","hex":""}}', "value is a string"), (b'{"value":"\\ud800"}', "no Unicode"),
        (b'{"value":null,"headers":"h"}', "a list"),
        (b'{"value":null,"headers":[["a","b"]]}', "a header is"), (b'{"value":null,"partition":-1}', "from 0"),
        (b'{"value":null,"timestamp":"now"}', "from 0"), (b'{"value":null,"timestamp":true}', "from 0"),
        (b"[" * 100_000, "no JSON"), (b'\xff{"value":null}', "no JSON"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_told(line, told):
    with pytest.raises(BadRecord, match=told):
        read_json(line, Encoding.TEXT)


def test_text_that_is_not_encoded_as_was_said_is_told():
    with pytest.raises(BadRecord, match="not hex"):
        read_line(b"abc", LineForm(encoding=Encoding.HEX))
    with pytest.raises(BadRecord, match="no separator"):
        read_line(b"abc", LineForm(separator=b":"))


def test_json_is_text_where_it_can_be():
    told = json.loads(write_json(incoming("ä".encode(), b"\xff"), LineForm()))
    assert (told["key"], told["value"]) == ("ä", {"base64": "/w=="})
