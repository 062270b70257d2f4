"""A cluster of several machines, asked by who is no broker of it: `drayd admin` and `dray.read` by log and store."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dray
from dray.cli.commands import admin, doctor
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import DrayError, Invalid
from dray.ids import SystemEntropy
from dray.log.urls import DeltaLogs
from dray.machine import checkpoint
from dray.machine.machine import Machine
from dray.node.metadata import Effects
from dray.node.visiting import NoCluster, TwoClusters, cluster_place, visit
from dray.objects.cluster import bind
from dray.objects.memory import MemoryObjects
from dray.offload import InlineOffload, ThreadOffload
from dray.pipeline.errors import BadOption
from dray.replica.checkpoints import PublishedCheckpoints, VisitingCheckpoints, newest_machine
from dray.tables.options import Store
from dray.testing import TestBroker, broker
from tests.pipeline.parts import create, numbered, produce
from tests.replica.domain import LOG_ID

RECORDS = 40


@pytest.fixture
def effects() -> Iterator[Effects]:
    offload = ThreadOffload(2)
    yield Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)
    offload.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[TestBroker]:
    """A broker whose log is in a directory that others share, with two data domains."""
    with broker(home / "a", log__url="deltalog:", objects__url=str(home / "objects"), cluster__domains=2) as found:
        create(found.bootstrap, "orders", 4)
        produce(found.bootstrap, "orders", numbered(0, RECORDS, 4))
        yield found


def asked(home: Path, *arguments: object, app: Any = admin.app, code: int = 0) -> Any:
    """What a command answers, on a machine that has nothing but the settings."""
    sets = ["log.url=deltalog:", f"objects.url={home / 'objects'}", f"broker.data={home / 'elsewhere'}"]
    flags = [text for one in sets for text in ("--set", one)]
    found = CliRunner().invoke(app, [*map(str, arguments), *flags])
    if isinstance(found.exception, DrayError):
        raise found.exception
    assert found.exit_code == code, (found.output, found.exception)
    return found.stdout


@pytest.mark.slow
def test_commands_find_a_cluster_by_its_settings_alone(running: TestBroker, home: Path) -> None:
    """ND7: state, entries, proofs, pins and versions, beside a running broker; nothing of its directory is read."""
    form = ("--format", "json")
    keys = [one["key"] for one in json.loads(asked(home, "meta", "ls", "-", *form))["keys"]]
    assert any("orders" in key for key in keys)
    assert json.loads(asked(home, "meta", "get", "deltalog:", keys[0], *form))["key"] == keys[0]
    streams = [json.loads(asked(home, "meta", "ls", "-", "--domain", n, *form))["keys"] for n in (1, 2)]
    assert all(any("/streams/" in one["key"] for one in found) for found in streams)
    assert [json.loads(line)["position"] for line in asked(home, "meta", "tail", "-", "-n", 2).splitlines()]
    assert json.loads(asked(home, "meta", "verify", "-", "--domain", 1, *form))["last"] > 1
    assert asked(home, "pins", "ls", "-") == "nothing is held\n"
    active = json.loads(asked(home, "meta", "activate", "-", "--yes", *form))["domains"]
    assert [one["domain"] for one in active] == [0, 1, 2]


def test_what_cannot_be_done_there_says_what_can(running: TestBroker, home: Path) -> None:
    """Recovery works on files; a broker's own directory keeps no log; no domain is added under a live broker."""
    with pytest.raises(Invalid, match="drayd admin meta import"):
        asked(home, "meta", "recover", "-", "--yes")
    with pytest.raises(Invalid, match=r"give its log\.url"):
        asked(home, "meta", "ls", home / "a")
    with pytest.raises(DrayError, match="stop every broker"):
        asked(home, "meta", "add-domains", "-", 3, "--yes")
    with pytest.raises(DrayError, match="no such domain"):
        asked(home, "meta", "ls", "-", "--domain", 9)


@pytest.mark.slow
def test_a_read_plans_from_the_log_and_the_store(running: TestBroker, home: Path) -> None:
    """SP5, SP6: with no directory of a broker; and through a broker that has no log of its own."""
    where = {"objects": str(home / "objects")}
    found = dray.read("orders", "deltalog:", options=where)
    assert found.num_rows == RECORDS
    assert sorted(found["value"].to_pylist()) == sorted(value for _, value, _, _ in numbered(0, RECORDS, 4))
    assert dray.read("orders", f"http://{running.http}").equals(found)
    held = json.loads(asked(home, "pins", "ls", "-", "--format", "json"))["pins"]
    assert held == [], "what a read of one's own has held is let go"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"log": "postgresql://dray:geheim@db/dray", "objects": "s3://b"}, "expected no password"),
        ({"log": "postgresql://dray@db/dray"}, "objects is missing"),
        ({"log": "local:dray-data", "objects": "s3://b"}, "it is what log.url of the brokers is, one of .*oxia:"),
        ({"log": "deltalog:", "path": "dray-data", "objects": "s3://b"}, "give one of path"),
    ],
)
def test_a_wrong_log_is_told_without_its_secret(options: dict[str, str], said: str) -> None:
    """Spark shows options and errors to everybody."""
    with pytest.raises(BadOption, match=said) as caught:
        dray.read("orders", options.get("path", ""), options={k: v for k, v in options.items() if k != "path"})
    assert "geheim" not in str(caught.value)


@pytest.mark.slow
def test_where_nobody_runs_domains_are_added_and_keys_made(tmp_path: Path) -> None:
    """M13, M14, ND5: of a log that brokers share; what was done is written down in a directory of this machine."""
    form = ("--format", "json")
    settings = {"log__url": "deltalog:", "objects__url": str(tmp_path / "objects")}
    with broker(tmp_path / "a", **settings):
        pass
    answered = asked(tmp_path, "meta", "add-domains", "-", 3, "--yes", *form)
    assert json.loads(answered) == {"before": 1, "domains": 3}
    made = json.loads(asked(tmp_path, "key", "create", "-", "--name", "first", *form))
    listed = json.loads(asked(tmp_path, "key", "list", "-", *form))["keys"]
    assert [(one["id"], one["state"]) for one in listed] == [(made["id"], "works")]
    asked(tmp_path, "key", "revoke", "-", made["id"], "--yes")
    proof = json.loads(asked(tmp_path, "audit", "verify", "-", *form))
    assert sum(chain["lines"] for chain in proof["chains"]) == 2
    assert (proof["asked"], proof["unlisted"]) == (2, [])
    with broker(tmp_path / "elsewhere", **settings) as found:  # it is a directory of this cluster by now
        create(found.bootstrap, "wide", 6)
        produce(found.bootstrap, "wide", numbered(0, 12, 6))
    streams = [asked(tmp_path, "meta", "ls", "-", "--domain", n) for n in (1, 2, 3)]
    assert all("/streams/" in found for found in streams)


def test_the_doctor_looks_at_a_shared_log(running: TestBroker, home: Path, tmp_path: Path) -> None:
    told = {
        one["check"]: one
        for one in json.loads(asked(home, "--format", "json", app=doctor.app))["findings"]
    }  # fmt: skip
    assert told["log"]["state"] == "ok"
    assert "domains" in told["log"]["saw"]
    empty = json.loads(asked(tmp_path, "--format", "json", app=doctor.app))["findings"]
    assert next(one for one in empty if one["check"] == "log")["saw"] == "there is no log yet"


async def test_a_visitor_begins_nothing(tmp_path: Path, effects: Effects) -> None:
    """ND7: an empty store, an empty log, and a log beside the store of another cluster."""
    place = cluster_place(DeltaLogs(tmp_path / "log"), Store(url=str(tmp_path / "objects")), effects)
    with pytest.raises(NoCluster, match="no cluster keeps its records"):
        async with visit(place, effects):
            pass
    objects = await place.open_objects()
    await bind(objects, "11111111-1111-1111-1111-111111111111")
    with pytest.raises(NoCluster, match="the log is empty"):
        async with visit(place, effects):
            pass
    assert not list((tmp_path / "log").rglob("*.json"))

    def other() -> None:
        with broker(tmp_path / "a", log__url=f"deltalog:{tmp_path / 'log'}", objects__url=str(tmp_path / "theirs")):
            pass

    await asyncio.to_thread(other)
    with pytest.raises(TwoClusters):
        async with visit(place, effects):
            pass


async def test_a_visitor_passes_over_a_damaged_checkpoint_and_leaves_it_where_it_is() -> None:
    """CK3"""
    objects = MemoryObjects()
    published = PublishedCheckpoints(objects, log_id=LOG_ID, domain=3, offload=InlineOffload())
    await published.publish(5, b"damaged")
    store = VisitingCheckpoints(published, InlineOffload())
    assert await store.confirmed() == [5]
    assert checkpoint.fingerprint(await newest_machine(store)) == checkpoint.fingerprint(Machine())
    assert (await store.confirmed(), await published.confirmed()) == ([], [5])
