"""`rdkafka_performance`, the cheapest load generator there is; built from the sources in the crate rdkafka-sys.

    python -m tools.peers.rdkafka     build it and print where it is

Needs cargo (to fetch the crate), a C compiler and make for the first run.
"""

import shutil
from pathlib import Path
from typing import Final

from tools.peers.process import cached, run, tool

CRATE: Final = "4.10.0"
"""Carries librdkafka 2.12.1."""

_MANIFEST: Final = f"""[package]
name = "carrier"
version = "0.0.0"
edition = "2021"

[dependencies]
rdkafka-sys = "={CRATE}"
"""
# Plain TCP without compression is all that is measured with it; fewer parts build everywhere.
_WITHOUT: Final = ("ssl", "gssapi", "curl", "zstd", "lz4-ext")


def performance_binary() -> Path:
    """The cached program, built if it is not there yet (about a minute)."""
    return cached(f"rdkafka-{CRATE}", _build) / "rdkafka_performance"


def _build(directory: Path) -> None:
    cargo = tool("cargo", "cargo")
    make = tool("make", "make gcc g++ libc6-dev zlib1g-dev")
    tool("g++", "g++")
    work = directory / "build"
    (work / "src").mkdir(parents=True)
    (work / "Cargo.toml").write_text(_MANIFEST)
    (work / "src" / "lib.rs").touch()
    run([cargo, "vendor", "-q", "--versioned-dirs", "vendor"], directory=work)
    [crate] = work.glob("vendor/rdkafka-sys-*")
    source = crate / "librdkafka"
    configure = source / "configure"
    configure.chmod(0o755)
    for script in source.glob("**/*.sh"):
        script.chmod(0o755)
    run(["sh", "-c", f"./configure {' '.join(f'--disable-{part}' for part in _WITHOUT)}"], directory=source)
    run([make, "-j2", "-C", "src"], directory=source)
    run([make, "-C", "examples", "rdkafka_performance"], directory=source)
    shutil.copy2(source / "examples" / "rdkafka_performance", directory / "rdkafka_performance")
    shutil.rmtree(work)


if __name__ == "__main__":
    print(performance_binary())
