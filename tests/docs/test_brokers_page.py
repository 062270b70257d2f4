"""docs/brokers.md: the configuration that it shows is one."""

from pathlib import Path

import pytest
import yaml

from dray.cli.main import run
from dray.cli.settings import SECTIONS
from dray.config import load
from dray.log.settings import LogSettings
from dray.log.urls import EtcdLogs, OxiaLogs, PostgresLogs
from dray.node.settings import ClusterSettings
from dray.testing import broker

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
