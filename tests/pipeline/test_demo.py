"""`make demo`, as on a machine that has no Java; and the wheel, as somebody installs it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.examples.test_examples import DEMO, SAYS

ROOT = Path(__file__).parents[2]
FOUND = """
import importlib, pkgutil, sys
import dray, dray.records._kernel
sources = {}
for module in pkgutil.iter_modules():
    if module.name.startswith("pyspark_"):
        found = importlib.import_module(module.name)
        sources[found.DefaultSource.name()] = found.__file__
print(sources["dray"], dray.__file__, dray.records._kernel.__file__, sep="\\n")
"""

pytestmark = pytest.mark.slow


def path_without_java(directory: Path) -> str:
    """A PATH with every program of this machine but Java's."""
    directory.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = directory / program.name
            if not program.name.startswith(("java", "jre")) and not link.is_symlink():
                link.symlink_to(program)
    return str(directory)


def run(command, seconds=300, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def short():
    """A directory for temporary files whose name leaves room for sockets."""
    with tempfile.TemporaryDirectory(prefix="d") as directory:
        yield Path(directory)


def test_the_demo_ends_in_sql_on_a_machine_without_java(tmp_path, short):
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = path_without_java(tmp_path / "bin")
    environment["TMPDIR"] = str(short)
    assert shutil.which("java", path=environment["PATH"]) is None
    said = run(["make", "demo"], 900, cwd=ROOT, env=environment)  # Spark starts three times
    for words in (words for example in DEMO for words in SAYS[example]):
        assert words in said
    assert "dray-java-" in said  # the wheel's
    told = re.findall(r"([\d,]+) were acknowledged before the question; ([\d,]+) are counted", said)
    numbers = [int(counted.replace(",", "")) for _, counted in told]
    assert numbers == sorted(numbers)
    assert numbers[0] >= 11_000 + 5_000
    assert told[0] != told[-1], "no record came in meanwhile"
    assert len(re.findall(r"^\|customer-[0-6]\|", said, re.MULTILINE)) == 7
    (shut,) = re.findall(r"the shop closed: ([\d,]+) acknowledged, \1 counted", said)
    assert int(shut.replace(",", "")) >= numbers[-1]
    assert not list(short.glob("tmp*")), "the demo left its data"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left in the tree, with what is installed here."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    run([Path(sys.executable).with_name("uv"), "build", "--wheel", "--no-build-isolation", "--offline",
         "--python", sys.executable, "--out-dir", out, source])  # fmt: skip
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_both_packages_and_the_kernel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"dray/__init__.py", "dray/py.typed", "pyspark_dray/__init__.py", "pyspark_dray/py.typed"} <= set(names)
    for package in ("records", "machine/heaps"):
        assert any(re.fullmatch(rf"dray/{package}/_kernel\..*\.(so|pyd)", name) for name in names)
    assert {name.split("/")[0] for name in names} == {
        "dray",
        "pyspark_dray",
        f"dray-{wheel.name.split('-')[1]}.dist-info",
    }


def test_the_installed_wheel_has_the_source_by_its_name_and_the_command(wheel, tmp_path):
    target = tmp_path / "target"
    run([Path(sys.executable).with_name("uv"), "pip", "install", "--offline", "--no-deps", "--python", sys.executable,
         "--target", target, wheel])  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(target)}
    for place in run([sys.executable, "-c", FOUND], cwd=tmp_path, env=environment).split():
        assert Path(place).is_relative_to(target)
    said = run([target / "bin" / "drayd", "--help"], cwd=tmp_path, env=environment)
    assert "dev" in said
    assert "admin" in said
