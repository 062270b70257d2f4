"""A Python that this machine's Debian does not have, from the release of Debian that has it.

    unpack("3.14", directory)          its packages, and those it needs
    linked("3.14", directory)          the interpreter; the directory must stay where it is from then on

Nothing of the machine is changed, and nobody needs to be root: apt keeps its
lists and packages in the same directory, and the packages are unpacked, not installed.
What they hold wants a newer libc than the machine has. So the interpreter is
a small program of its own, linked here: it names the libc, the loader and the
libpython that were unpacked beside it. Whatever it starts that is not Python
(a compiler, say) is the machine's own.

Where packages come from is asked of the machine's apt; only the name of the
release is another. They are signed as the machine's are.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

RELEASE: Final = "sid"
"""The one release that has the newest Python; apt names what it has not."""
_KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LIBRARIES: Final = Path("usr/lib/x86_64-linux-gnu")
_LEFT_OUT: Final = ("libc6-dev_", "libc-dev-bin_", "linux-libc-dev_")
"""What is compiled here is compiled for the machine's libc."""
_MAIN: Final = """
int Py_BytesMain(int, char **);
int main(int count, char **words) { return Py_BytesMain(count, words); }
"""


class NotThere(RuntimeError):
    """There is no such Python, or this machine cannot get one that way."""


def unpack(version: str, directory: Path) -> None:
    """Fill an empty directory with a Python of this version, its headers, and what it needs.

    Raises:
        NotThere: no Debian, no network, or no such version.
    """
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            raise NotThere(f"{needed} is missing: is this a Debian?")
    if not _KEYS.exists():
        raise NotThere(f"{_KEYS} is missing: is this a Debian?")
    for package in _downloaded(version, directory / "apt"):
        if not package.name.startswith(_LEFT_OUT):
            _run(["dpkg-deb", "-x", package, directory])
    shutil.rmtree(directory / "apt")
    # Debian's pyconfig.h looks for the one of its architecture from /usr/include.
    (directory / "usr" / "include" / f"python{version}" / "x86_64-linux-gnu").symlink_to("../x86_64-linux-gnu")


def linked(version: str, directory: Path) -> Path:
    """The interpreter of an unpacked Python, made if it is not there yet.

    Raises:
        NotThere: it could not be linked, or does not run.
    """
    root = directory.resolve()
    program = root / "usr" / "bin" / f"python{version}-here"
    if program.exists():
        return program
    libraries = root / _LIBRARIES
    source, fresh = root / "main.c", program.with_suffix(".partial")
    source.write_text(_MAIN)
    _run([
        "gcc", source, "-o", fresh, f"-L{libraries}", f"-l:libpython{version}.so.1.0", "-Wl,--allow-shlib-undefined",
        f"-Wl,--dynamic-linker,{libraries}/ld-linux-x86-64.so.2",
        # The old kind of path holds for what is loaded later, too.
        f"-Wl,--disable-new-dtags,-rpath,{libraries}",
    ])  # fmt: skip
    _run([fresh, "-c", "import ctypes, ssl, sqlite3"])
    fresh.rename(program)
    return program


def _downloaded(version: str, state: Path) -> list[Path]:
    """The packages of one Python with its headers, and of all that they need: some 40."""
    for part in ("lists/partial", "archives/partial"):
        (state / part).mkdir(parents=True)
    (state / "status").touch()  # nothing is installed, so nothing that is needed is left out
    (state / "sources.list").write_text(f"deb [signed-by={_KEYS}] {_address()} {RELEASE} main\n")
    options = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",  # as who we are: its own user may not read a directory of ours
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-qq", "-y", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    _run([*apt, "update"])
    wanted = [f"python{version}", f"libpython{version}", f"libpython{version}-dev", f"python{version}-venv"]
    _run([*apt, "--download-only", "install", *wanted])
    return sorted((state / "archives").glob("*.deb"))


def _address() -> str:
    """Where this machine gets Debian from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"]
    for line in _run(asked).splitlines():
        address, _, label = line.partition(" ")
        if label == "Debian":
            return address
    raise NotThere("apt has no list of Debian's packages: run `apt-get update`")


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(
        [str(part) for part in command], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip() or "no reason was told").splitlines()[-1]
        raise NotThere(f"{Path(str(command[0])).name} ended with {done.returncode}: {why}")
    return done.stdout
