"""Settings of the log of commands: where it is kept, and in pieces of which size."""

from pathlib import Path
from typing import Final, Self

from pydantic import field_validator, model_validator

from dray.config import Section, Size
from dray.errors import Invalid
from dray.log.urls import SHARED_FORMS, LogUrl, PasswordInUrl, ServedLogs, parse_log_url

_LARGEST_ENTRY: Final = Size("16MiB")
"""What a length in a segment can say; `FileLog.open` refuses more."""
_LEAST: Final = Size("16MiB")
_EXPECTED: Final = f"expected local:DIR, unix:DIR/meta.sock, {SHARED_FORMS} or memory:"


class LogSettings(Section):
    """The log of commands, from which all metadata is rebuilt."""

    url: str | None = None
    """The engine and its place: `local:DIR`, `unix:DIR/meta.sock` for the log that another broker of this machine
    keeps in its data directory; for brokers of several machines `postgresql://USER@HOST/DATABASE` (the extra
    `postgres`), `etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX` (`etcds://` with TLS), `oxia://HOST:PORT/NAMESPACE` (the
    extra `oxia`; `oxias://` with TLS), `deltalog:` for those that have the store of `objects.url` and nothing else, or
    `deltalog:DIR` for a directory that they share: for these `objects.url` must name a store that all of them reach; or
    `memory:` for tests. Not set: in the data directory."""

    segment_bytes: Size = Size("64MiB")
    """Begin a new file when the current one has this many bytes. Smaller: finer trimming, more files."""

    max_entry_bytes: Size = Size("1MiB")
    """Refuse an entry above this size. Above 1MiB a log cannot be moved to etcd."""

    keep_bytes: Size = Size("2GiB")
    """Keep an hour of the log for `drayd meta` and for who comes back, but no more than this; never less than what
    lies between the two newest checkpoints."""

    checkpoint_bytes: Size = Size("256MiB")
    """Make a checkpoint when the log has grown by this much, bodies of messages included. Without those it is due much
    sooner. Smaller: a quicker start after a crash, more work beside."""

    @field_validator("url")
    @classmethod
    def _known_engine(cls, value: str | None) -> str | None:
        try:
            found = None if value is None else parse_log_url(value)
        except PasswordInUrl as error:
            raise ValueError(str(error)) from None
        except Invalid as unknown:
            raise ValueError(_EXPECTED) from unknown
        if isinstance(found, ServedLogs) and not isinstance(found.address, Path):
            raise ValueError(_EXPECTED)  # over TCP a broker would find no checkpoint (ADR-0012)
        return value

    @property
    def place(self) -> LogUrl | None:
        """Where it is kept; None: in the data directory."""
        return None if self.url is None else parse_log_url(self.url)

    @model_validator(mode="after")
    def _an_entry_fits(self) -> Self:
        if not 0 < self.max_entry_bytes <= _LARGEST_ENTRY:
            raise ValueError(f"log.max_entry_bytes must be from 1B to {_LARGEST_ENTRY}")
        if self.segment_bytes < self.max_entry_bytes:
            raise ValueError("log.segment_bytes must be at least log.max_entry_bytes")
        if min(self.keep_bytes, self.checkpoint_bytes) < _LEAST:
            raise ValueError(f"log.keep_bytes and log.checkpoint_bytes must be at least {_LEAST}")
        return self
