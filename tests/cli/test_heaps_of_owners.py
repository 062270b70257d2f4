"""`drayd admin heap` and `drayd admin dlq`: beside a running broker and on a directory whose broker has stopped."""

import asyncio
import json

import pytest

from dray.access.audit import audit_files
from dray.cli.main import run
from dray.client import Client, Reject
from dray.disk import LocalDisk
from dray.testing import broker


@pytest.fixture
def drayd(capsys):
    """One command, and what it told."""

    def do(*arguments: object, code: int = 0) -> str:
        assert run([str(argument) for argument in arguments]) == code, capsys.readouterr()
        found = capsys.readouterr()
        return found.out if code == 0 else found.err

    return do


async def work(address: str) -> None:
    """Five messages, of which two die."""
    async with Client(address) as client:
        heap = client.heap("jobs")
        for number in range(5):
            await heap.enqueue({"n": number}, priority=number)
        async with heap.pop(concurrency=1) as consumer:
            for _ in range(2):
                async with consumer.item():
                    raise Reject("broken")


async def bytes_too(address: str) -> None:
    async with Client(address) as client:
        await client.heap("jobs").enqueue(b"\xff", priority=-9)


def test_the_owner_of_a_directory_operates_its_heaps_with_and_without_a_broker(tmp_path, drayd):
    """D-019, D-175, D-177, D-193, D-195, D-202, D-212, D-256, D-312: AU1"""
    admin = ("admin", "heap")
    with broker(data=tmp_path) as running:
        made = drayd(*admin, "create", tmp_path, "jobs", "--mode", "min", "-c", "visibility_timeout=5s", "--format",
                     "json")  # fmt: skip
        assert json.loads(made)["heaps"][0]["lease_seconds"] == 5.0
        assert "exists" in drayd(*admin, "create", tmp_path, "jobs", code=1)
        asyncio.run(work(running.grpc))
        asyncio.run(bytes_too(running.grpc))
        stats = json.loads(drayd(*admin, "stats", tmp_path, "--format", "json"))["heaps"]
        assert [(one["heap"], one["ready"], one["dead"]) for one in stats] == [("jobs", 4, 2)]
        drayd(*admin, "alter", tmp_path, "jobs", "--heap-config", "max_retries=3", "-c", "paused=true")
    assert drayd(*admin, "list", tmp_path, "--format", "tsv").split() == ["jobs", "min", "1", "5s", "3"]
    assert "paused:      yes" in drayd(*admin, "describe", tmp_path, "jobs")
    peeked = json.loads(drayd(*admin, "peek", tmp_path, "jobs", "-n", 2, "--format", "json"))["messages"]
    assert [(one["priority"], one["payload"]) for one in peeked] == [(-9, "0xff"), (2, '{"n": 2}')]
    letters = json.loads(drayd("admin", "dlq", "list", tmp_path, "jobs", "--format", "json"))["messages"]
    assert [(one["error"], one["state"], one["payload"]) for one in letters] == [
        ("broken", "dead", '{"n": 0}'), ("broken", "dead", '{"n": 1}'),
    ]  # fmt: skip
    dry = drayd("admin", "dlq", "replay", tmp_path, "jobs", "--all", "--dry-run")
    assert "nothing was changed" in dry
    one = letters[1]["id"]
    assert drayd("admin", "dlq", "replay", tmp_path, "jobs", "--id", one, "--format", "tsv") == "jobs\t1\n"
    assert "--yes" in drayd("admin", "dlq", "delete", tmp_path, "jobs", "--all", code=1)
    assert drayd("admin", "dlq", "delete", tmp_path, "jobs", "--all", "--yes", "--format", "tsv") == "jobs\t1\n"
    assert "--yes" in drayd(*admin, "purge", tmp_path, "jobs", code=1)
    assert drayd(*admin, "purge", tmp_path, "jobs", "--yes", "--format", "tsv") == "jobs\t5\n"
    assert "--yes" in drayd(*admin, "delete", tmp_path, "jobs", code=1)
    drayd(*admin, "delete", tmp_path, "jobs", "--yes")
    assert "no such heap" in drayd(*admin, "stats", tmp_path, "jobs", code=1)
    place = tmp_path / "audit" / "admin"
    (name,) = audit_files(place, LocalDisk())
    lines = [json.loads(line) for line in (place / name).read_text().splitlines()]
    assert [(line["action"], line["result"]) for line in lines] == [
        ("heap.make", "done"), ("heap.make", "conflict"), ("heap.alter", "done"), ("dlq.replay", "done"),
        ("dlq.delete", "done"), ("heap.purge", "done"), ("heap.delete", "done"),
    ]  # fmt: skip
    assert "are whole" in drayd("admin", "audit", "verify", tmp_path)


@pytest.mark.parametrize(
    "words",
    [("heap", "alter", "DIR", "jobs", "-c", "nonsense=1"), ("dlq", "replay", "DIR", "jobs"),
     ("dlq", "delete", "DIR", "jobs", "--all", "--id", "x")],
)  # fmt: skip
def test_what_makes_no_sense_is_wrong_usage_before_anything_is_opened(tmp_path, drayd, words):
    drayd("admin", *(tmp_path if word == "DIR" else word for word in words), code=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("config", ["colour=red", "max_retries=many", "nothing"])
def test_a_config_that_makes_no_sense_is_told_with_the_option_that_brought_it(tmp_path, drayd, config):
    assert "--heap-config" in drayd("admin", "heap", "create", tmp_path, "jobs", "-c", config, code=2)
