"""R-195: topic configs are checked strictly and kept."""

import pytest

from dray.topics import configs
from dray.topics.errors import BadTopicConfig


def test_every_default_is_a_value_of_its_own_key():
    for key in configs.KEYS.values():
        assert key.accepts(key.default), key.name


def test_every_effective_key_is_known_and_changes_the_meaning():
    changed = {
        "cleanup.policy": "compact", "max.message.bytes": "5", "message.timestamp.after.max.ms": "6",
        "message.timestamp.before.max.ms": "7", "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "8", "retention.ms": "9",
    }  # fmt: skip
    for name, value in changed.items():
        assert configs.meaning({name: value}) != configs.meaning({}), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"), ("retention.ms", "1e3"), ("retention.ms", ""), ("retention.ms", "1_000"),
        ("retention.ms", "9223372036854775808"), ("cleanup.policy", "purge"), ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", ""), ("message.timestamp.type", "createtime"), ("max.message.bytes", "-1"),
        ("compression.type", "brotli"), ("compression.gzip.level", "10"), ("min.cleanable.dirty.ratio", "1.5"),
        ("preallocate", "yes"), ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "1:2,x"),
    ],
)  # fmt: skip
def test_a_value_that_kafka_would_refuse_is_refused(name: str, value: str):
    with pytest.raises(BadTopicConfig, match="expected="):
        configs.check({name: value})


def test_a_policy_that_only_compacts_is_kept_and_deletes_nothing():
    """R-197, E-21: legal, though nothing compacts yet; ADR-0145."""
    assert configs.check({"cleanup.policy": " compact "}) == {"cleanup.policy": "compact"}
    meaning = configs.meaning({"cleanup.policy": "compact"})
    assert meaning.compacted
    assert not meaning.deletes


@pytest.mark.parametrize("value", ["delete", "compact,delete", "delete, compact"])
def test_a_policy_that_deletes_is_kept(value: str):
    assert configs.check({"cleanup.policy": value}) == {"cleanup.policy": value}
    assert configs.meaning({"cleanup.policy": value}).deletes


def test_an_unknown_key_is_refused_and_the_nearest_one_is_named():
    with pytest.raises(BadTopicConfig, match=r"nearest=retention\.ms"):
        configs.check({"retention.mss": "1"})


def test_a_null_value_means_the_default_and_is_not_kept():
    assert configs.check({"retention.ms": None, "retention.bytes": " 10 "}) == {"retention.bytes": "10"}
