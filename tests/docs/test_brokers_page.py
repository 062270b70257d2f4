"""docs/brokers.md: the configuration that it shows is one, and its commands do what it says."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from dray.cli.main import run
from dray.cli.settings import SECTIONS
from dray.config import load
from dray.log.settings import LogSettings
from dray.log.urls import EtcdLogs, OxiaLogs, PostgresLogs
from dray.machine.head import SUPPORTED
from dray.node.settings import ClusterSettings
from dray.testing import broker
from tests.durability.daemon import Drayd
from tests.upgrade.recordings import unpack_directory
from tests.upgrade.test_directory import produce, read_all

OLDER = """
import sys
from dray.machine.machine import Machine
Machine.supported = 1
del sys.argv[0]
from dray.cli.main import main
main()
"""
"""Runs `drayd` as a build that knows version 1 of the rules."""
PAGE = Path(__file__).parents[2] / "docs" / "brokers.md"


@pytest.mark.parametrize(
    ("heading", "engine"),
    [
        ("    # broker-1.yaml: ", PostgresLogs),
        ("    # broker-1.yaml, with etcd", EtcdLogs),
        ("    # broker-1.yaml, with Oxia", OxiaLogs),
    ],
)
def test_the_configuration_of_a_broker_among_several_machines_is_taken(
    tmp_path: Path, heading: str, engine: type
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = text[text.index(heading) :].split("\n\n", 1)[0]
    written = tmp_path / "broker-1.yaml"
    written.write_text("\n".join(line[4:] for line in block.splitlines()), encoding="utf-8")
    assert "advertise" in yaml.safe_load(written.read_text(encoding="utf-8"))["kafka"]
    config = load(SECTIONS, file=written, environ={})
    assert isinstance(config.get(LogSettings).place, engine)
    assert config.get(ClusterSettings).domains == 4


@pytest.mark.slow
def test_what_the_page_does_beside_brokers_works_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ND7: each command of the section, on a cluster whose log is in its store."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("### Tools beside them") : text.index("## Moving, and backups")]
    commands = [line.split()[1:] for line in section.splitlines() if line.startswith("    drayd ")]
    assert len(commands) == 7
    settings = {"log": {"url": "deltalog:"}, "objects": {"url": str(tmp_path / "objects")}}
    monkeypatch.chdir(tmp_path)
    Path("broker-1.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    with broker(tmp_path / "a", log__url="deltalog:", objects__url=str(tmp_path / "objects"), cluster__domains=2):
        assert [run(command) for command in commands] == [0] * len(commands)


@contextmanager
def serving(data: Path, *flags: str, older: bool = False) -> Iterator[Drayd]:
    """A broker, of this build or an older one."""
    daemon = Drayd(data, *flags)
    daemon.prefix = (sys.executable, "-c", OLDER) if older else ()
    with daemon:
        yield daemon
        assert daemon.terminate() == 0


def drayd(words: list[str], at: Path, *, older: bool = False) -> subprocess.CompletedProcess[str]:
    prefix = (sys.executable, "-c", OLDER) if older else ()
    command = [*prefix, str(Path(sys.executable).with_name("drayd")), *words]
    return subprocess.run(
        command, cwd=at, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_a_cluster_is_upgraded_as_the_page_tells(tmp_path: Path) -> None:
    """D-273, M5, M12: a broker that keeps the log, then one that joined it, then the rules."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## Upgrading") : text.index("## A bucket and nothing else")]
    commands = [line.split()[1:] for line in section.splitlines() if line.startswith("       drayd ")]
    assert len(commands) == 4
    doctor, _, activate, _ = commands
    directory, other = unpack_directory(tmp_path), ("--set", "broker.id=2")
    (tmp_path / "broker-1.yaml").write_text(yaml.safe_dump({"broker": {"data": str(directory)}}), encoding="utf-8")
    log = f"unix:{directory}/meta.sock"

    with serving(directory) as first:
        assert any("node.old_rules" in line for line in first.log)
        with serving(tmp_path / "b2", "--log", log, *other, older=True) as second:
            produce(first.bootstrap, "from one build")
            produce(second.bootstrap, "from the other")
            assert read_all(first.bootstrap) == read_all(second.bootstrap)
            assert "version 1 of the rules is active" in drayd(doctor, tmp_path).stdout
            refused = drayd(activate, tmp_path)
            assert refused.returncode == 1
            assert "older=broker 2" in refused.stderr
        with serving(tmp_path / "b2", "--log", log, *other) as second:
            done = [drayd(words, tmp_path) for words in commands]
            assert [one.returncode for one in done] == [0] * len(commands), done
            assert f"this build knows version {SUPPORTED}" in done[0].stdout
            assert f"version {SUPPORTED} of the rules is active, the newest" in done[-1].stdout
            produce(second.bootstrap, "under new rules")
            assert read_all(first.bootstrap)[0][-3:] == [b"from one build", b"from the other", b"under new rules"]

    free = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "")
    late = drayd(["dev", "--data", str(directory), *free], tmp_path, older=True)
    assert late.returncode == 4
    assert "the build that its brokers run" in late.stderr
    begun = tmp_path / "begun"
    assert drayd(["admin", "meta", "import", "before.dray", str(begun)], tmp_path).returncode == 0
    assert "version 1 of the rules" in drayd(["doctor", "--data", str(begun)], tmp_path, older=True).stdout
