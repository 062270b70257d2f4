"""A wheel is built from the source archive, tagged, and runs where nothing else is installed."""

import re
import sys

import pytest

from tools import wheels

HERE = f"{sys.version_info.major}{sys.version_info.minor}"


@pytest.mark.slow
def test_a_wheel_for_this_python_takes_its_first_steps_in_a_clean_environment(tmp_path):
    archive = wheels.source_archive(tmp_path)
    made = wheels.wheel(archive, sys.executable, tmp_path / "dist")
    assert re.fullmatch(rf"dray-[^-]+-cp{HERE}-cp{HERE}-manylinux.+\.whl", made.name)
    told = wheels.try_out(made, sys.executable)
    assert "ready kafka=" in told


def test_a_python_that_nobody_has_is_missing():
    with pytest.raises(wheels.Missing, match=r"no Python 3\.99"):
        wheels.interpreter("3.99")
