"""Gets a suite, runs it, and reads what came of it."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from dray.testing import broker
from tools.peers.process import cached, run
from tools.suites.suite import Suite

_HERE: Final = Path(__file__).resolve().parent
"""Where suites find their plugins."""
_UV: Final = Path(sys.executable).with_name("uv")
_MIN_SESSION: Final = "1s"
"""As the suites set up brokers of their own; those have the id 0."""
_TEST_SECONDS: Final = 120
_SUITE_SECONDS: Final = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one test."""

    test: str
    verdict: str
    """passed, failed or skipped"""
    said: str


def play(suite: Suite, checkout: Path | None = None, only: str = "") -> list[Outcome]:
    """Run a suite against a broker of its own; from a checkout of its repository, or from its archive."""
    home = cached(f"suite-{suite.client}-{suite.version}", lambda directory: _get(suite, directory))
    source = home / "source"
    if checkout is not None:
        shutil.rmtree(source, ignore_errors=True)
        # The client itself is installed, with what it compiles.
        shutil.copytree(checkout, source, ignore=shutil.ignore_patterns(suite.client, ".git"))
    with tempfile.TemporaryDirectory(prefix="dray-suite-") as scratch:
        report = Path(scratch) / "report.xml"
        command = [home / "environment" / "bin" / "python", "-m", "pytest", "-q", "-rN"]
        command += [f"--timeout={_TEST_SECONDS}", f"--junitxml={report}", *suite.options, *suite.paths]
        command += ["-k", only] if only else []
        for name, text in suite.lacks:
            (source / name).write_text(text)
        with broker(
            Path(scratch) / "data", topics__partitions=suite.partitions, groups__min_session=_MIN_SESSION, broker__id=0
        ) as dray:
            environment = {**os.environ, "PYTHONPATH": str(_HERE), **suite.environment(dray.bootstrap)}
            subprocess.run(
                [str(part) for part in command], cwd=source, env=environment, check=False,
                timeout=_SUITE_SECONDS,
            )  # fmt: skip
        return _read(report)


def _get(suite: Suite, directory: Path) -> None:
    wanted = f"{suite.client}=={suite.version}"
    environment = directory / "environment"
    inside = environment / "bin" / "python"
    run([_UV, "venv", "--quiet", "--seed", "--python", sys.executable, environment])
    run([_UV, "pip", "install", "--quiet", "--python", inside, wanted, *suite.needs])
    if not suite.in_archive:
        return
    run([inside, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", suite.client, "-d", directory, wanted])
    [archive] = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    [source] = (path.parent for path in directory.glob("*/pyproject.toml"))
    source.rename(directory / "source")
    archive.unlink()


def _read(report: Path) -> list[Outcome]:
    """A test that fails, and fails again when it is taken down, stands there twice: the first counts."""
    found: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        verdict, said = "passed", ""
        for kind, means in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
            told = case.find(kind)
            if told is not None:
                verdict, said = means, told.get("message") or ""
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        if name not in found or found[name].verdict == "passed":
            found[name] = Outcome(test=name, verdict=verdict, said=" ".join(said.split()))
    return list(found.values())
