"""Names of tables for catalogs that take only small letters, digits and underscores."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from dray.tables.names import LONGEST, escaped

ESCAPE = re.compile(r"_(_|[0-9a-f]{2})")
ESCAPED = re.compile(r"(?:[a-z0-9]|_(?:_|[0-9a-f]{2}))+")
TOPICS = st.text("abzAZ019._-", min_size=1, max_size=249)


def unescaped(name: str) -> str | None:
    """The topic that a name tells; None for one that was cut."""
    if not ESCAPED.fullmatch(name):
        return None
    return ESCAPE.sub(lambda found: "_" if found[1] == "_" else chr(int(found[1], 16)), name)


@given(TOPICS)
@example("X" * 249)
@example("_" * 249)
@example("orders.eu")
def test_a_name_is_small_and_tells_its_topic_unless_it_was_cut(topic):
    """E-17, TN1"""
    name = escaped(topic)
    assert re.fullmatch("[a-z0-9_]{1,255}", name)
    was_cut = sum(1 if sign in "abz019" else 2 if sign == "_" else 3 for sign in topic) > LONGEST
    assert unescaped(name) == (None if was_cut else topic)


@given(st.lists(TOPICS, min_size=2, max_size=5, unique=True))
def test_two_topics_never_share_a_name(topics):
    """TN1"""
    assert len({escaped(topic) for topic in topics}) == len(topics)


def test_capitals_dots_and_long_names():
    assert escaped("Orders") == "_4frders"
    assert escaped("orders") == "orders"
    assert escaped("a.b_c-d") == "a_2eb__c_2dd"
    long, other = "A" * 249, "A" * 248 + "B"
    assert escaped(long) != escaped(other)
    assert len(escaped(long)) <= LONGEST
    assert unescaped(escaped(long)) is None, "the property of the table tells it"
