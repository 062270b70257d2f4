"""What a broker has loaded once it has served: no Spark, no Arrow, no cloud, nothing that it was not meant to have."""

import json
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dray.client.sync import Client
from tests.cli.daemon import serving

KNOWN = {
    "annotated_doc", "annotated_types", "anyio", "click", "cramjam", "crc32c", "h11", "httptools", "msgspec",
    "prometheus_client", "pydantic", "pydantic_core", "pygments", "re2", "rich", "shellingham", "starlette",
    "structlog", "typer", "typing_extensions", "typing_inspection", "uvicorn", "uvloop", "yaml",
}  # fmt: skip
"""`typer` is there because `drayd` starts the broker, `rich` and what it needs because structlog takes it if it can."""
GRPC = {"google", "grpc", "grpc_health", "grpc_reflection"}
"""Only where heaps are served over gRPC."""
TAKEN_IF_THERE = {"_distutils_hack", "attr", "grpc_tools", "snappy"}
"""What these load themselves where it happens to be installed, as it is for tests."""

# drayd as its entry point starts it; at its end it tells what it has loaded, and from where.
DRAYD = """
import atexit, json, pathlib, sys
def tell():
    loaded = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    pathlib.Path(TOLD).write_text(json.dumps(loaded))
atexit.register(tell)
from dray.cli.main import main
main()
"""


def outsiders(paths: set[str]) -> set[str]:
    """Packages that are neither Python's nor ours, by the files that are loaded."""
    below = {path.split("/site-packages/", 1)[1] for path in paths if "/site-packages/" in path}
    return {name.split("/")[0].split(".")[0] for name in below}


def use(bootstrap: str, url: str) -> None:
    """Produce and fetch in every codec, look a time up, commit, and look at the page."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        producer.produce("orders", b"x" * 1_000, timestamp=1_000)
        assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    (found,) = consumer.offsets_for_times([TopicPartition("orders", 0, 1_000)], timeout=60)
    consumer.assign([found])
    assert sum(len(consumer.consume(1, 60)) for _ in range(5)) == 5
    consumer.commit(asynchronous=False)
    consumer.close()
    for path in ("", "metrics"):
        with urllib.request.urlopen(url + path) as answer:
            assert answer.status == 200


def use_heaps(grpc: str) -> None:
    """Enqueue, lease, settle and count over gRPC."""
    with Client(grpc) as client:
        client.make_heap("jobs")
        jobs = client.heap("jobs")
        jobs.enqueue({"id": 1})
        with next(iter(jobs.pop())) as job:
            assert job.payload == {"id": 1}
        assert jobs.stats().ready == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grpc", "known"), [("127.0.0.1:0", KNOWN | GRPC), ("", KNOWN)], ids=["as by default", "without gRPC"]
)
def test_a_broker_that_has_served_has_loaded_only_what_it_is_known_to_need(tmp_path, grpc, known):
    """As its memory map and its own table of modules have it: what is loaded late counts too."""
    told = tmp_path / "modules.json"
    arguments = ("--data", tmp_path / "data", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", grpc)
    command = (sys.executable, "-c", f"TOLD = {str(told)!r}\n{DRAYD}")
    with serving(*arguments, command=command) as drayd:
        use(drayd.kafka, drayd.url)
        if grpc:
            use_heaps(drayd.told["grpc"])
        maps = Path(f"/proc/{drayd.process.pid}/maps").read_text(encoding="utf-8")
        native = {line.split(maxsplit=5)[5] for line in maps.splitlines() if ".so" in line}
        assert drayd.stop() == 0
    loaded = json.loads(told.read_text(encoding="utf-8"))
    assert "dray.servers.kafka.apis.fetch" in loaded
    assert ("dray.servers.grpc.server" in loaded) == bool(grpc)
    assert outsiders(native) <= known
    assert outsiders({path for path in loaded.values() if path}) <= known | TAKEN_IF_THERE
    assert not [name for name in loaded if name.split(".")[:2] in (["dray", "pipeline"], ["dray", "sim"])]
