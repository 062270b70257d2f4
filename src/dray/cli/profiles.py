"""Which cluster `dray` asks: what the command line, the environment or the user's file says.

    # ~/.config/dray/config.toml
    profile = "local"                     # the one that holds when none is named

    [profiles.local]
    bootstrap = "127.0.0.1:9092"

    [profiles.staging]
    bootstrap = "kafka-1:9092,kafka-2:9092"

The file lies in $XDG_CONFIG_HOME where that is set. The first of these that
says something wins: --bootstrap, --profile, DRAY_BOOTSTRAP, DRAY_PROFILE,
`profile` of the file, the address at which `drayd dev` listens.
"""

import difflib
import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.errors import Invalid, NotFound

LOCAL: Final = "127.0.0.1:9092"
"""Where `drayd dev` listens."""
_LARGEST_FILE: Final = 1 << 20


class BadProfiles(Invalid):
    """The user's file cannot be used."""

    advice = "mend the file; `dray profiles --help` shows how one looks"


class NoSuchProfile(NotFound):
    """The file has no profile of this name."""

    advice = "`dray profiles` shows those there are, and their file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The user's file; nothing where there is none."""

    file: Path
    chosen: str | None = None
    bootstraps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The cluster that is asked, and who said so."""

    bootstrap: str
    origin: str
    profile: str | None = None


def environment() -> Mapping[str, str]:
    return os.environ


def profiles_file(environ: Mapping[str, str]) -> Path:
    """Where the file is, or would be."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "dray" / "config.toml"


def read_profiles(file: Path) -> Profiles:
    """What the file says.

    Raises:
        BadProfiles: it is no TOML, or says what no profile has.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles(file=file)
    except OSError as error:
        raise BadProfiles("the file cannot be read", file=file) from error
    if len(raw) > _LARGEST_FILE:
        raise BadProfiles("the file is too large", file=file, limit=_LARGEST_FILE)
    try:
        document: Mapping[str, object] = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadProfiles(f"the file is no TOML: {error}", file=file) from error
    _known(document, ("profile", "profiles"), file, "")
    tables = document.get("profiles", {})
    if not isinstance(tables, dict):
        raise BadProfiles("`profiles` holds one table for each profile", file=file)
    bootstraps = {name: _bootstrap(name, table, file) for name, table in tables.items()}
    chosen = document.get("profile")
    if chosen is not None and (not isinstance(chosen, str) or chosen not in bootstraps):
        raise BadProfiles("`profile` names no profile of the file", file=file, profile=chosen)
    return Profiles(file=file, chosen=chosen, bootstraps=bootstraps)


def select(bootstrap: str | None, profile: str | None, environ: Mapping[str, str], profiles: Profiles) -> Selection:
    """The cluster to ask.

    Raises:
        NoSuchProfile: a profile is named that the file does not have.
    """
    if bootstrap:
        return Selection(bootstrap=bootstrap, origin="--bootstrap")
    if profile:
        return _of_profile(profile, "--profile", profiles)
    if told := environ.get("DRAY_BOOTSTRAP"):
        return Selection(bootstrap=told, origin="DRAY_BOOTSTRAP")
    if told := environ.get("DRAY_PROFILE"):
        return _of_profile(told, "DRAY_PROFILE", profiles)
    if profiles.chosen is not None:
        return _of_profile(profiles.chosen, str(profiles.file), profiles)
    return Selection(bootstrap=LOCAL, origin="default")


def _of_profile(name: str, origin: str, profiles: Profiles) -> Selection:
    if name not in profiles.bootstraps:
        raise NoSuchProfile("there is no such profile", profile=name, file=profiles.file)
    return Selection(bootstrap=profiles.bootstraps[name], origin=origin, profile=name)


def _bootstrap(name: str, table: object, file: Path) -> str:
    if not isinstance(table, dict):
        raise BadProfiles("a profile is a table with its `bootstrap`", file=file, profile=name)
    _known(table, ("bootstrap",), file, f"profiles.{name}.")
    told = table.get("bootstrap")
    if not isinstance(told, str) or not told:
        raise BadProfiles('a profile has its `bootstrap`, such as "127.0.0.1:9092"', file=file, profile=name)
    return told


def _known(table: Mapping[str, object], names: Collection[str], file: Path, path: str) -> None:
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1) or sorted(names)
            raise BadProfiles(f"nobody knows {path}{key}: did you mean {near[0]}?", file=file)
