"""Settings of the log of commands: where it is kept, and in pieces of which size."""

from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from dray.config import Section, Size

ENGINES: Final = ("local", "memory", "unix")
_LARGEST_ENTRY: Final = Size("16MiB")
"""What a length in a segment can say; `FileLog.open` refuses more."""


class LogSettings(Section):
    """The log of commands, from which all metadata is rebuilt."""

    url: str | None = None
    """The engine and its place: `local:DIR`, `unix:DIR/meta.sock` for the log that another broker of this machine
    keeps in its data directory, or `memory:` for tests. Not set: in the data directory."""

    segment_bytes: Size = Size("64MiB")
    """Begin a new file when the current one has this many bytes. Smaller: finer trimming, more files."""

    max_entry_bytes: Size = Size("1MiB")
    """Refuse an entry above this size. Above 1MiB a log cannot be moved to etcd."""

    @field_validator("url")
    @classmethod
    def _known_engine(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ENGINES or (parts.scheme != "memory" and not (parts.netloc or parts.path)):
            raise ValueError("expected local:DIR, unix:DIR/meta.sock or memory:")
        return value

    @property
    def directory(self) -> Path | None:
        """The directory of a `local:` log that does not lie in the data directory."""
        return self._path_behind("local:")

    @property
    def socket(self) -> Path | None:
        """The socket of a log that another process keeps."""
        return self._path_behind("unix:")

    def _path_behind(self, scheme: str) -> Path | None:
        found = self.url is not None and self.url.startswith(scheme)
        return Path(str(self.url).removeprefix(scheme)).absolute() if found else None

    @model_validator(mode="after")
    def _an_entry_fits(self) -> Self:
        if not 0 < self.max_entry_bytes <= _LARGEST_ENTRY:
            raise ValueError(f"log.max_entry_bytes must be from 1B to {_LARGEST_ENTRY}")
        if self.segment_bytes < self.max_entry_bytes:
            raise ValueError("log.segment_bytes must be at least log.max_entry_bytes")
        return self
