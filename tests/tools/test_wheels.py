"""A wheel is built from the source archive, tagged, and runs where nothing else is installed."""

import re
import sys

import pytest

from tools import wheels
from tools.debian_python import NotThere, unpack

HERE = f"{sys.version_info.major}{sys.version_info.minor}"


@pytest.mark.slow
def test_a_wheel_for_this_python_takes_its_first_steps_in_a_clean_environment(tmp_path):
    archive = wheels.source_archive(tmp_path)
    made = wheels.wheel(archive, sys.executable, tmp_path / "dist")
    assert re.fullmatch(rf"dray-[^-]+-cp{HERE}-cp{HERE}-manylinux.+\.whl", made.name)
    told = wheels.try_out(made, sys.executable)
    assert "ready kafka=" in told


def test_a_python_that_nobody_has_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.peers.process.CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(wheels.Missing, match=r"no Python 3\.99 .*Debian neither: apt-get is missing"):
        wheels.interpreter("3.99")


@pytest.mark.peers
@pytest.mark.long
def test_a_python_that_debian_has_not_either_is_told(tmp_path):
    with pytest.raises(NotThere, match=r"python3\.99"):
        unpack("3.99", tmp_path)


@pytest.mark.peers
@pytest.mark.long
def test_a_python_that_the_machine_may_lack_comes_from_debian_and_is_built_for(tmp_path):
    python = wheels.from_debian("3.14")
    archive = wheels.source_archive(tmp_path)
    made = wheels.wheel(archive, str(python), tmp_path / "dist")
    assert re.fullmatch(r"dray-[^-]+-cp314-cp314-manylinux.+\.whl", made.name)
    assert "ready kafka=" in wheels.try_out(made, str(python))
