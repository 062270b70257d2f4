"""`drayd admin key` and `drayd admin audit`, on a directory whose broker has stopped."""

import asyncio
import json

import pytest

from dray.access.audit import audit_files
from dray.cli.main import run
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.node.metadata import Effects
from dray.offload import ThreadOffload
from tests.node.test_metadata import metadata


@pytest.fixture
def directory(tmp_path):
    """A data directory that nobody runs on."""
    offload = ThreadOffload(4)
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=offload)

    async def begin() -> None:
        async with metadata(tmp_path, effects):
            pass

    asyncio.run(begin())
    offload.close()
    return tmp_path


@pytest.fixture
def drayd(capsys):
    """One command, and what it told; stderr is asked for by `told`."""

    def do(*arguments: object, code: int = 0) -> str:
        assert run([str(argument) for argument in arguments]) == code, capsys.readouterr()
        found = capsys.readouterr()
        return found.out if code == 0 else found.err

    return do


@pytest.mark.slow
def test_a_key_is_made_listed_and_revoked_and_its_secret_is_shown_once(directory, drayd):
    """D-250, D-253, D-257, D-311"""
    made = json.loads(drayd("admin", "key", "create", directory, "--name", "ops", "--format", "json"))
    assert made["role"] == "admin", "the first one makes the others"
    second = drayd("admin", "key", "create", directory, "--name", "worker", "--expires", "30d")
    secret, worker = made["key"].split("_")[2], second.splitlines()[0]
    assert worker.startswith("dray_")
    assert "role operator" in second
    listed = drayd("admin", "key", "list", directory)
    assert [line.split()[1] for line in listed.splitlines()[1:]] == ["ops", "worker"]
    drayd("admin", "key", "revoke", directory, made["id"], "--yes")
    states = json.loads(drayd("admin", "key", "list", directory, "--format", "json"))["keys"]
    assert [(one["id"], one["state"]) for one in states] == [(made["id"], "revoked"), (worker.split("_")[1], "works")]
    views = drayd("admin", "meta", "ls", directory, "--format", "json") + drayd("admin", "meta", "tail", directory)
    assert made["id"] in views
    written = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    for one in (secret, worker.split("_")[2]):
        assert one not in listed + views
        assert one.encode() not in written, "the secret is in no file"
    assert "argon2" not in views


@pytest.mark.slow
def test_what_was_done_is_in_the_audit_file_and_a_changed_line_is_found(directory, drayd):
    """AU1, AC12, D-256"""
    key_id = json.loads(drayd("admin", "key", "create", directory, "--format", "json"))["id"]
    drayd("admin", "key", "revoke", directory, key_id, "--yes")
    assert "no such key" in drayd("admin", "key", "revoke", directory, "nosuchid", "--yes", code=1)
    place = directory / "audit" / "admin"
    (name,) = audit_files(place, LocalDisk())
    lines = [json.loads(line) for line in (place / name).read_text().splitlines()]
    assert [(line["action"], line["result"], line["door"]) for line in lines] == [
        ("key.create", "done", "directory"), ("key.revoke", "done", "directory"),
        ("key.revoke", "not_found", "directory"),
    ]  # fmt: skip
    tail = drayd("admin", "meta", "tail", directory)
    assert lines[0]["request"] in tail, "the log is the second witness"
    verified = drayd("admin", "audit", "verify", directory)
    assert "audit/admin: 3 lines in 1 files are whole" in verified
    assert "the log holds 2 commands of administrators, 2 of them are in these files" in verified
    whole = (place / name).read_text()
    (place / name).write_text("".join(whole.splitlines(keepends=True)[:1]))
    cut = json.loads(drayd("admin", "audit", "verify", directory, "--format", "json"))
    assert [(one["command"], one["request"]) for one in cut["unlisted"]] == [("RevokeKey", lines[1]["request"])]
    (place / name).write_text(whole)
    (place / name).write_text((place / name).read_text().replace('"done"', '"gone"', 1))
    assert "was changed" in drayd("admin", "audit", "verify", directory, code=1)
    assert "was changed" in drayd("admin", "key", "create", directory, code=1), "nobody goes on behind it"


@pytest.mark.parametrize("expires", ["0", "-1d", "soon", "30"])
def test_a_life_that_is_none_is_wrong_usage(tmp_path, drayd, expires):
    assert "--expires" in drayd("admin", "key", "create", tmp_path, "--expires", expires, code=2)


def test_a_directory_of_somebody_else_has_no_keys(tmp_path, drayd):
    assert "no such file" in drayd("admin", "key", "list", tmp_path, code=1)
    assert "no such file" in drayd("admin", "audit", "verify", tmp_path, code=1)


def test_nothing_is_revoked_before_somebody_says_so(directory, drayd):
    """D-212"""
    key_id = json.loads(drayd("admin", "key", "create", directory, "--format", "json"))["id"]
    drayd("admin", "key", "revoke", directory, key_id, code=1)
    (one,) = json.loads(drayd("admin", "key", "list", directory, "--format", "json"))["keys"]
    assert one["state"] == "works"
