"""What README.md shows is run, and what a first user meets before anything runs is as it says."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dray.servers.grpc.settings import GrpcSettings
from dray.servers.http.settings import HttpSettings
from dray.servers.kafka.settings import KafkaSettings
from tests.cli.daemon import ended, serving

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
[PROGRAM] = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
READ = ("cramjam", "obstore", "typer", "uvicorn")
"""Libraries whose error texts we read, or whose insides we use."""


@pytest.mark.slow
def test_the_first_program_stores_and_reads_ten_records(tmp_path):
    with serving("--data", tmp_path / "data", "--kafka", "0", "--http", "0", "--grpc", "") as drayd:
        program = PROGRAM.replace(KafkaSettings().listen, drayd.kafka)
        assert program != PROGRAM
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert done.stdout.splitlines() == [f"{number} order {number}" for number in range(10)], done.stderr
        assert drayd.stop() == 0


def test_the_ready_line_and_the_addresses_are_the_defaults():
    line = f"ready kafka={KafkaSettings().listen} http=http://{HttpSettings().listen}/ grpc={GrpcSettings().listen}"
    assert line in README
    assert "8080" not in README


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(re.findall(r"^ +(drayd [a-z]+)", README, re.MULTILINE))))
def test_every_command_that_is_named_exists(command):
    assert ended(*command.split()[1:], "--help").code == 0


def test_the_license_is_there_and_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()


def test_libraries_whose_texts_we_read_have_upper_bounds_that_hold_for_what_is_locked():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    locked = dict(re.findall(r"^([a-z0-9-]+)==([\d.]+)", (ROOT / "requirements/dev.lock").read_text(), re.MULTILINE))
    bounds = {
        name: re.search(r"<([\d.]+)", line) for line in dependencies if (name := re.split(r"[><=]", line)[0]) in READ
    }
    assert sorted(bounds) == sorted(READ)
    for name, bound in bounds.items():
        assert bound is not None, name
        assert numbers(locked[name]) < numbers(bound[1]), name


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part]


OLD = "import sys; sys.version_info = (3, 10, 4, 'final', 0); sys.version = '3.10.4 (main)'; "


def test_an_older_python_is_refused_by_the_build_before_it_imports_anything():
    script = f"{OLD} sys.modules['setuptools'] = None; exec(open('setup.py').read())"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dray needs Python 3.11 or newer, and this is 3.10.4: {sys.executable}\n"


def test_an_older_python_is_refused_by_make_before_anything_is_made(tmp_path):
    """With a Python that says that it is old; the rest of the tree is as on a fresh machine."""
    old = tmp_path / "python3"
    old.write_text(f'#!/bin/sh\n[ "$1" = -c ] || exit 9\nexec {sys.executable} -c "{OLD} exec(sys.argv[1])" "$2"\n')
    old.chmod(0o755)
    for name in ("requirements", "src", "pyproject.toml", "setup.py", "Makefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "setup", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 2
    assert "dray needs Python 3.11 or newer, and this is 3.10.4" in done.stderr
    assert not (tmp_path / ".venv").exists()
