"""What a user does with `dray`, on whatever broker listens there: the same answers from Dray and from Apache Kafka."""

import base64
import json

from tests.cli.asking import Told, dray

RECORDS = [
    {"key": "a", "value": "one", "headers": []},
    {"key": None, "value": "no key", "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}]},
    {"key": "", "value": "empty key", "headers": []},
    {"key": "a", "value": None, "headers": []},
    {"key": "b", "value": "", "headers": [{"key": "", "value": ""}]},
    {"key": {"base64": "/wA="}, "value": {"base64": base64.b64encode(bytes(range(256))).decode()}, "headers": []},
    {"key": "big", "value": "x" * 900_000, "headers": []},
]


def lines(*records: dict) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


class Shop:
    """A user of one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *argv: object, stdin: bytes = b"") -> Told:
        return dray(*argv, "--bootstrap", self.bootstrap, stdin=stdin)

    def good(self, *argv: object, stdin: bytes = b"") -> dict:
        told = self(*argv, "--format", "json", stdin=stdin)
        assert told.code == 0, told
        return told.json

    def refused(self, *argv: object, stdin: bytes = b"") -> dict:
        told = self(*argv, "--format", "json", stdin=stdin)
        assert told.code == 1, told
        return told.json["error"]

    def read(self, *argv: object) -> list[dict]:
        told = self("consume", *argv, "--format", "json")
        assert told.code == 0, told
        return [json.loads(line) for line in told.out.splitlines()]


def tell_the_cluster(shop: Shop) -> None:
    """Its brokers are listed, and can be connected to."""
    told = shop.good("cluster")
    assert told["cluster"]
    [broker] = told["brokers"]
    assert f"{broker['host']}:{broker['port']}" == shop.bootstrap
    assert told["controller"] == broker["broker"]


def tell_a_topic(shop: Shop) -> None:
    """It is made once, listed, described and deleted; and nothing is deleted without a word."""
    assert shop.good("topics", "create", "story", "-p", 2, "--dry-run")["created"] is False
    assert shop.refused("topics", "describe", "story")["kind"] == "not_found"
    made = shop.good("topics", "create", "story", "-p", 2, "-c", "retention.ms=3600000")
    assert (made["created"], made["partitions"], made["replication"]) == (True, 2, 1)
    assert shop.refused("topics", "create", "story")["kind"] == "conflict"
    assert shop.good("topics", "create", "story", "--if-not-exists")["created"] is False
    listed = {one["topic"]: one for one in shop.good("topics", "list")["topics"]}
    assert listed["story"] == {"topic": "story", "partitions": 2, "replication": 1, "internal": False}
    described = shop.good("topics", "describe", "story")
    assert [(one["partition"], one["start"], one["end"]) for one in described["partitions"]] == [(0, 0, 0), (1, 0, 0)]
    assert shop.refused("topics", "create", "no good name")["kind"] == "invalid"
    assert shop.refused("topics", "create", "other", "-c", "retention.ms=soon")["kind"] == "invalid"
    assert "was not confirmed" in shop.refused("topics", "delete", "story")["message"]
    assert shop.good("topics", "delete", "story", "--dry-run")["partitions"] == 2
    assert shop.good("topics", "delete", "story", "--yes")["dry_run"] is False
    assert shop.refused("topics", "delete", "story", "--yes")["kind"] == "not_found"


def tell_configs(shop: Shop) -> None:
    """They are set and unset, one at a time."""
    shop.good("topics", "create", "tuned", "-c", "retention.ms=3600000")

    def own() -> dict[str, str]:
        told = shop.good("configs", "describe", "topic", "tuned", "--own")
        return {one["name"]: one["value"] for one in told["configs"]}

    assert own() == {"retention.ms": "3600000"}
    arguments = ("topics", "alter", "tuned", "--set", "max.message.bytes=2000000", "--delete", "retention.ms")
    assert shop.good(*arguments, "--dry-run")["dry_run"] is True
    assert own() == {"retention.ms": "3600000"}
    changed = {one["name"]: (one["from"], one["to"]) for one in shop.good(*arguments)["configs"]}
    assert changed["retention.ms"] == ("3600000", None)
    assert changed["max.message.bytes"][1] == "2000000"
    while own() != {"max.message.bytes": "2000000"}:
        pass  # a broker of Kafka learns of a change after it was answered; the test's own limit ends this
    described = shop.good("topics", "describe", "tuned")["configs"]
    assert {one["name"]: one["source"] for one in described}["retention.ms"] == "default"
    assert shop.refused("configs", "alter", "topic", "tuned", "--set", "no.such=1")["kind"] == "invalid"
    assert shop.refused("configs", "describe", "topic", "nowhere")["kind"] == "not_found"
    [broker] = shop.good("cluster")["brokers"]
    assert shop.good("configs", "describe", "broker", broker["broker"])["configs"]
    assert shop.refused("configs", "describe", "broker", 99)["kind"] == "not_found"


def tell_growth(shop: Shop) -> None:
    """A topic gets more partitions, and never fewer."""
    shop.good("topics", "create", "growing", "-p", 1)
    assert shop.good("topics", "add-partitions", "growing", "--add", 2, "--dry-run")["to"] == 3
    assert len(shop.good("topics", "describe", "growing")["partitions"]) == 1
    assert shop.good("topics", "add-partitions", "growing", "--add", 2) == {
        "topic": "growing", "dry_run": False, "from": 1, "to": 3,
    }  # fmt: skip
    assert len(shop.good("topics", "describe", "growing")["partitions"]) == 3
    assert shop.refused("topics", "add-partitions", "growing", "--total", 2)["kind"] == "invalid"


def tell_trimming(shop: Shop) -> None:
    """The oldest records go, where somebody said so."""
    shop.good("topics", "create", "long", "-p", 2)
    shop.good("produce", "long", "-p", 0, stdin=b"0\n1\n2\n3\n")
    shop.good("produce", "long", "-p", 1, stdin=b"0\n")
    assert "was not confirmed" in shop.refused("topics", "trim", "long", "--before", ":3")["message"]
    planned = shop.good("topics", "trim", "long", "--before", ":3", "--dry-run")["partitions"]
    assert [(one["from"], one["to"]) for one in planned] == [(0, 3), (0, 1)]
    shop.good("topics", "trim", "long", "--before", ":3", "-p", 0, "--yes")
    assert sorted((one["partition"], one["offset"]) for one in shop.read("long")) == [(0, 3), (1, 0)]
    shop.good("topics", "trim", "long", "--before", "latest", "--yes")
    assert shop.read("long") == []


def tell_records(shop: Shop) -> None:
    """Every kind of record comes out as it went in, and can be copied with a pipe."""
    shop.good("topics", "create", "records", "-p", 1)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        stored = shop.good("produce", "records", "--input", "json", "-z", codec, stdin=lines(*RECORDS))
        assert (stored["taken"], stored["stored"], stored["failed"], stored["unknown"]) == (7, 7, 0, 0)
    read = shop.read("records")
    assert [{name: one[name] for name in ("key", "value", "headers")} for one in read] == RECORDS * 5
    copied = shop("consume", "records", "--format", "json", "-n", 7).out
    assert shop.good("produce", "copy", "--create", "--repartition", "-i", "json", stdin=copied)["stored"] == 7
    told = sorted(shop.read("copy"), key=lambda one: str(one["value"]))
    first = sorted(read[:7], key=lambda one: str(one["value"]))
    assert [(one["value"], one["timestamp"]) for one in told] == [(one["value"], one["timestamp"]) for one in first]


def tell_places(shop: Shop) -> None:
    """Reading begins and ends where it was said."""
    shop.good("topics", "create", "places", "-p", 1)
    dated = [{"value": f"v{number}", "timestamp": 1_700_000_000_000 + number * 1000} for number in range(10)]
    shop.good("produce", "places", "-i", "json", stdin=lines(*dated))
    for arguments, expected in [
        ((), range(10)),
        (("--from", "earliest", "-n", 3), range(3)),
        (("--from", ":7"), range(7, 10)),
        (("--from", ":70"), range(0)),
        (("--from", "-2"), range(8, 10)),
        (("--from", "+8"), range(8, 10)),
        (("--from", "@1700000004500"), range(5, 10)),
        (("--from", "@2023-11-14T22:13:25Z", "--until", ":8"), range(5, 8)),
        (("--until", "@1700000002000"), range(2)),
    ]:
        assert [one["offset"] for one in shop.read("places", *arguments)] == list(expected), arguments


def tell_a_group(shop: Shop) -> None:
    """A group goes on where its last member ended: after what was printed, not after what was fetched."""
    shop.good("topics", "create", "shared", "-p", 1)
    shop.good("produce", "shared", stdin=b"".join(b"%d\n" % number for number in range(10)))
    assert [one["offset"] for one in shop.read("shared", "--group", "team", "-n", 4)] == [0, 1, 2, 3]
    described = shop.good("groups", "describe", "team")
    assert (described["state"], described["partitions"][0]["committed"]) == ("Empty", 4)
    assert [one["offset"] for one in shop.read("shared", "--group", "team")] == [4, 5, 6, 7, 8, 9]
    assert shop.read("shared", "--group", "team") == []


STORIES = (
    tell_the_cluster,
    tell_a_topic,
    tell_records,
    tell_places,
    tell_a_group,
    tell_configs,
    tell_growth,
    tell_trimming,
)
