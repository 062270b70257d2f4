"""A URL says which log is meant, and one function opens it for whoever wants it."""

import re
from pathlib import Path
from typing import get_args

import pytest

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.errors import Invalid
from dray.log.client import WrongServer
from dray.log.opening import LogEffects, LogOptions, is_served, look_at_log, open_log
from dray.log.port import BEFORE_ALL, NotAppended
from dray.log.server import LogServer
from dray.log.urls import (
    SHARED_FORMS,
    SHARED_SCHEMES,
    DeltaLogs,
    EtcdLogs,
    LocalLogs,
    MemoryLogs,
    OxiaLogs,
    PasswordInUrl,
    PostgresLogs,
    ServedLogs,
    SharedLogs,
    parse_log_url,
)
from dray.offload import InlineOffload
from tests.log.test_server import CLUSTER

URLS = {
    "local:/data/meta": LocalLogs(Path("/data/meta")),
    "unix:/data/meta.sock": ServedLogs(Path("/data/meta.sock")),
    "tcp:127.0.0.1:7000": ServedLogs(("127.0.0.1", 7000)),
    "tcp:[::1]:7000": ServedLogs(("::1", 7000)),
    "postgresql://dray@db:5432/logs?sslmode=require": PostgresLogs("postgresql://dray@db:5432/logs?sslmode=require"),
    "etcd://e1:2379,[::1]:2380/a/b": EtcdLogs(
        text="etcd://e1:2379,[::1]:2380/a/b", endpoints=("e1:2379", "[::1]:2380"), prefix="a/b"
    ),
    "etcds://me@e1:2379/a?ca=/ca.pem&password_file=/secret": EtcdLogs(
        text="etcds://me@e1:2379/a?ca=/ca.pem&password_file=/secret", endpoints=("e1:2379",), prefix="a", secure=True,
        user="me", password_file=Path("/secret"), ca=Path("/ca.pem"),
    ),
    "oxia://o1:6648": OxiaLogs(text="oxia://o1:6648", endpoints=("o1:6648",), namespace="default", prefix="dray"),
    "oxias://o1:6648,[::1]:6649/ns?prefix=a-b&token_file=/token&ca=/ca.pem": OxiaLogs(
        text="oxias://o1:6648,[::1]:6649/ns?prefix=a-b&token_file=/token&ca=/ca.pem",
        endpoints=("o1:6648", "[::1]:6649"), namespace="ns", prefix="a-b", secure=True, token_file=Path("/token"),
        ca=Path("/ca.pem"),
    ),
    "deltalog:": DeltaLogs(),
    "deltalog:/shared": DeltaLogs(Path("/shared")),
    "memory:": MemoryLogs(),
}  # fmt: skip
SOURCE = Path(__file__).parents[2] / "src" / "dray"


@pytest.fixture
def effects() -> LogEffects:
    return LogEffects(clock=SystemClock(), disk=LocalDisk(), offload=InlineOffload())


@pytest.mark.parametrize("text", URLS)
def test_a_url_means_one_thing_and_is_written_as_it_is_read(text: str) -> None:
    assert parse_log_url(text) == URLS[text]
    assert str(parse_log_url(text)) == text


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("postgresql://dray:s3cret@db/logs", "PGPASSWORD"),
        ("postgresql://db/logs?password=s3cret", "PGPASSWORD"),
        ("etcd://dray:s3cret@e1:2379/logs", "password_file"),
        ("etcd://e1:2379/logs?password=s3cret", "password_file"),
        ("oxia://dray:s3cret@o1:6648", "token_file"),
        ("oxia://o1:6648/default?token=s3cret", "token_file"),
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(text: str, instead: str) -> None:
    with pytest.raises(PasswordInUrl, match=instead) as refused:
        parse_log_url(text)
    assert "s3cret" not in str(refused.value)


def test_a_relative_path_is_of_the_directory_in_which_it_was_given(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_log_url("local:here") == LocalLogs(tmp_path / "here")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "local:",
        "unix:",
        "tcp:",
        "tcp:host",
        "tcp::1",
        "tcp:host:0",
        "tcp:host:65536",
        "memory:x",
        "raft:x",
        "etcd:e1:2379/a",
        "etcd://e1/a",
        "etcd://e1:2379",
        "etcd://e1:2379,/a",
        "etcd://e1:0/a",
        "etcd://e1:2379/a?x=1",
        "oxia:o1:6648",
        "oxia://o1/default",
        "oxia://o1:6648,/default",
        "oxia://o1:6648/a/b",
        "oxia://o1:6648?prefix=a/b",
        "oxia://o1:6648?prefix=",
        "oxia://o1:6648?x=1",
    ],
)
def test_what_no_log_has_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(Invalid, match="local:DIR"):
        parse_log_url(text)


@pytest.mark.parametrize("text", URLS)
def test_what_brokers_share_is_known_by_how_its_url_begins(text: str) -> None:
    assert isinstance(parse_log_url(text), SharedLogs) is text.startswith(SHARED_SCHEMES)


def test_every_engine_that_brokers_share_is_told_to_whoever_gives_another() -> None:
    meant = {type(parse_log_url(form.replace("PORT", "1").replace("[DIR]", ""))) for form in SHARED_FORMS.split(", ")}
    assert meant == set(get_args(SharedLogs))


def test_no_module_beside_the_logs_lists_the_engines() -> None:
    """Who adds one has `urls` and `opening` to go to; everybody else asks for `SharedLogs`."""
    engines = re.compile("|".join(rf"\b{engine.__name__}\b" for engine in get_args(SharedLogs)))
    beside = (path for path in SOURCE.rglob("*.py") if SOURCE / "log" not in path.parents)
    named = {path: set(engines.findall(path.read_text(encoding="utf-8"))) for path in beside}
    assert [path for path, names in named.items() if len(names) == len(get_args(SharedLogs))] == []


async def test_owner_joiner_and_reader_open_the_same_log(tmp_path, effects) -> None:
    files = LocalLogs(tmp_path)
    kept = await open_log(files, 3, effects)
    await kept.append(b"first")
    socket = ServedLogs(tmp_path / "meta.sock")
    assert not await is_served(socket, 10)
    server = LogServer({3: kept}, cluster_id=CLUSTER)
    await server.listen_unix(tmp_path / "meta.sock")
    assert await is_served(socket, 10)
    joined = await open_log(parse_log_url(str(socket)), 3, effects, LogOptions(cluster_id=CLUSTER))
    assert await joined.append(b"second") == 2
    assert [await anext(joined.follow(BEFORE_ALL)), await kept.tail()] == [(1, b"first"), 2]
    stranger = await open_log(socket, 3, effects, LogOptions(cluster_id=type(CLUSTER)(int=1)))
    with pytest.raises(WrongServer, match="another cluster"):
        await stranger.append(b"third")
    for log in (stranger, joined, server, kept):
        await log.close()
    looked = look_at_log(files, 3, effects.disk)
    assert [entry async for _, entry in looked.follow(BEFORE_ALL)] == [b"first", b"second"]
    with pytest.raises(NotAppended):
        await looked.append(b"third")


async def test_each_memory_is_a_log_of_its_own(effects) -> None:
    one, other = [await open_log(MemoryLogs(), 0, effects) for _ in range(2)]
    await one.append(b"first")
    assert (await one.tail(), await other.tail()) == (1, 0)
