"""`drayd doctor` says what is wrong and what to do."""

import json

import pytest

from dray.cli.settings import SECTIONS
from dray.config import load, parse_set
from dray.machine.machine import Machine
from dray.machine.sessions import KeepAlive
from dray.node import doctor
from dray.objects.probe import store_date
from dray.testing import broker
from tests.node.test_admin import damage_the_middle, drayd, effects, fill
from tests.node.test_metadata import metadata

__all__ = ["effects"]


async def findings(*arguments: object, code: int = 0) -> dict[str, dict[str, str]]:
    said = json.loads(await drayd("doctor", *arguments, "--format", "json", code=code, stream="stdout"))
    return {one["check"]: one for one in said["findings"]}


async def examined(path, *settings: str) -> dict[str, doctor.Finding]:
    given = [f"broker.data={path}", *settings]
    config = load(SECTIONS, environ={}, overrides=[parse_set(one) for one in given])
    return {found.check: found async for found in doctor.examine(config)}


@pytest.mark.slow
async def test_a_new_place_and_a_running_broker_are_both_healthy(tmp_path):
    fresh = await findings("--data", tmp_path / "new")
    assert {one["state"] for one in fresh.values()} <= {"ok", "warn"}
    with broker(tmp_path):
        live = await findings("--data", tmp_path)
        assert "in use" in live["directory"]["saw"]
        assert "entries" in live["log"]["saw"]


@pytest.mark.slow
async def test_more_connections_than_files_are_warned_of(tmp_path):
    found = await findings("--data", tmp_path / "new", "--set", "kafka.max_connections=2000000000")
    assert found["limits"]["state"] == "warn"
    assert "kafka.max_connections" in found["limits"]["next"]


@pytest.mark.parametrize(("hours", "state"), [(0, "ok"), (-3, "warn"), (3, "warn")])
async def test_a_clock_that_differs_from_the_stores_is_warned_of(tmp_path, monkeypatch, hours, state):
    """Q7: the store vouches for this machine's clock, so it is asked."""

    async def date(objects, entropy):
        return await store_date(objects, entropy) + hours * 3_600_000

    monkeypatch.setattr(doctor, "store_date", date)
    given = [f"broker.data={tmp_path / 'new'}", f"objects.url={tmp_path / 'objects'}"]
    config = load(SECTIONS, environ={}, overrides=[parse_set(one) for one in given])
    [found] = [one async for one in doctor.examine(config) if one.check == "clock"]
    assert found.state.value == state
    assert f"{-hours * 3600:+d}" in found.saw.replace(".0", "") or hours == 0


@pytest.mark.slow
async def test_a_damaged_log_is_found_and_the_way_out_is_named(tmp_path, effects):
    async with metadata(tmp_path, effects) as running:
        await fill(running)
        for _ in range(20):
            await fill_again(running)
    damage_the_middle(tmp_path)
    found = await findings("--data", tmp_path, code=1)
    assert found["log"]["state"] == "fail"
    assert "drayd admin meta recover" in found["log"]["next"]


@pytest.mark.slow
async def test_damage_in_any_domain_is_found(tmp_path, effects):
    async with metadata(tmp_path, effects, domains=2) as running:
        for _ in range(20):
            await running.domains[2].propose(KeepAlive())
    assert (await examined(tmp_path))["log"].saw.startswith("3 domains; the catalog: ")
    [segment] = (tmp_path / "meta" / "domain-00002" / "log").glob("*.log")
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    segment.write_bytes(raw)
    found = await examined(tmp_path)
    assert found["log"].state is doctor.State.FAIL
    assert found["log"].next.endswith(f"drayd admin meta recover {tmp_path} --domain 2")
    assert "rules" not in found


async def fill_again(running) -> None:
    await running.domains.catalog.propose(KeepAlive())


async def test_a_log_that_takes_too_long_is_a_finding_and_no_crash(tmp_path, effects, monkeypatch):
    monkeypatch.setattr(doctor, "LOOK_S", 0.0)
    async with metadata(tmp_path, effects):
        found = (await examined(tmp_path))["log"]
    assert found.state is doctor.State.FAIL
    assert "to its end" in found.saw


@pytest.mark.slow
async def test_a_store_that_cannot_be_reached_is_found(tmp_path):
    found = await findings(
        "--data", tmp_path / "new", "--set", "objects.url=s3://bucket/prefix", "--set", "objects.allow_http=true",
        "--set", "objects.endpoint=http://127.0.0.1:9", "--set", "objects.access_key_id=a",
        "--set", "objects.secret_access_key=b", "--set", "objects.retries=0", "--set", "objects.region=x", code=1,
    )  # fmt: skip
    assert found["store"]["state"] == "fail"


async def test_a_store_or_a_log_that_is_not_mounted_is_found(tmp_path):
    """ND3: before a start finds out."""
    with broker(tmp_path):
        pass
    assert {found.state for found in (await examined(tmp_path)).values()} <= {doctor.State.OK, doctor.State.WARN}
    (tmp_path / "objects").rename(tmp_path / "elsewhere")
    store = (await examined(tmp_path))["store"]
    assert store.state is doctor.State.FAIL
    assert "objects.url" in store.next
    (tmp_path / "objects").mkdir()
    assert (await examined(tmp_path))["store"].state is doctor.State.FAIL
    (tmp_path / "meta").rename(tmp_path / "gone")
    log = (await examined(tmp_path))["log"]
    assert log.state is doctor.State.FAIL
    assert "mount its volume" in log.saw


@pytest.mark.parametrize(("hours", "state"), [(-900, "ok"), (0, "ok"), (20, "ok"), (90_000, "fail")])
def test_a_log_whose_time_is_ahead_of_the_clock_is_found_and_the_way_back_is_named(hours, state):
    """RT20: behind is what every machine is that was switched off."""
    machine = Machine()
    machine.timeline.begin(1_700_000_000_000 + hours * 3_600_000)
    found = doctor._compared([machine], 1_700_000_000_000)
    assert found.state.value == state
    assert ("admin meta recover" in found.next) == (state == "fail")
