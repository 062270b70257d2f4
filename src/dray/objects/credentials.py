"""Keys for S3 from the files that Amazon's own tools keep, and the order in which keys are looked for.

    settings ─► AWS_ACCESS_KEY_ID ... ─► web identity ─► a profile in ~/.aws ─► container ─► instance role

obstore knows all of these but the profile; a profile that is named
(`objects.profile`, AWS_PROFILE) goes before everything but the settings.
Files are read again every few minutes, for tools replace temporary keys.
"""

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dray.clock import Clock
from dray.errors import Invalid

_FRESH: Final = timedelta(minutes=5)
_ELSEWHERE: Final = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
_BY_OTHERS: Final = ("role_arn", "sso_session", "sso_start_url", "credential_process")
"""What a profile may say instead of keys, and only Amazon's own tools can follow."""


class NoProfile(Invalid):
    """The profile that was named gives no keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Keys:
    """What a request is signed with."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expires: datetime | None = None
    """When to ask for them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyProfile:
    """One name in the two files of keys and of settings."""

    name: str
    keys: Path
    settings: Path
    clock: Clock

    @property
    def region(self) -> str | None:
        return self._read().get("region")

    def has_keys(self) -> bool:
        return "aws_access_key_id" in self._read()

    def read(self) -> S3Keys:
        found = self._read()
        if "aws_access_key_id" not in found or "aws_secret_access_key" not in found:
            others = [name for name in _BY_OTHERS if name in found]
            raise NoProfile(
                "the profile has no keys: add aws_access_key_id and aws_secret_access_key, or export what the profile "
                "stands for into the environment (aws configure export-credentials)",
                profile=self.name, files=f"{self.keys}, {self.settings}", found=", ".join(others) or "none",
            )  # fmt: skip
        wall = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)
        return S3Keys(
            access_key=found["aws_access_key_id"], secret_key=found["aws_secret_access_key"],
            token=found.get("aws_session_token"), expires=wall + _FRESH,
        )  # fmt: skip

    def _read(self) -> Mapping[str, str]:
        """What both files say; that of keys has the last word."""
        section = self.name if self.name == "default" else f"profile {self.name}"
        return _section(self.settings, section) | _section(self.keys, self.name)


def profile_for(clock: Clock, *, name: str | None, keys: Path | None) -> KeyProfile | None:
    """The profile to take keys from; None where they come from the settings or from what obstore knows.

    `name` and `keys` are what the settings say: the profile, and the file that it is in.

    Raises:
        NoProfile: one was named, and gives none.
    """
    environment = os.environ  # noqa: TID251 - where Amazon's own tools look
    home = Path(environment.get("HOME", "/"))
    named = name or environment.get("AWS_PROFILE") or ("default" if keys is not None else None)
    profile = KeyProfile(
        name=named or "default",
        keys=keys or Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws/credentials"),
        settings=Path(environment.get("AWS_CONFIG_FILE") or home / ".aws/config"),
        clock=clock,
    )
    if named is not None:
        profile.read()
        return profile
    if any(environment.get(one) for one in _ELSEWHERE) or not profile.has_keys():
        return None
    return profile


def _section(path: Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}  # not there, or not for us; the text of such an error may show a key
    return dict(parser[name]) if parser.has_section(name) else {}
