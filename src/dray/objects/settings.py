"""Settings of the object store: where it is, who we are there, how long we try."""

from datetime import timedelta
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from dray.config import Secret, Section

SCHEMES: Final = ("file", "memory", "s3", "gs", "az")


class ObjectsSettings(Section):
    """The object store, which holds every record."""

    url: str | None = None
    """Where objects are kept: a directory, `s3://BUCKET/PREFIX`, `gs://...`, `az://...`, or `memory:` for tests.
    Not set: in the data directory."""

    endpoint: str | None = None
    """The address of an S3-compatible store, as `https://HOST:PORT`. Not set: the provider's own."""

    region: str | None = None
    """The region of the bucket. Not set: what the environment of the provider says."""

    access_key_id: str | None = None
    """The name of the key, on Azure that of the account. Not set: the provider's own credentials (environment, files
    of its tools, role of the machine)."""

    secret_access_key: Secret | None = None
    """The key that belongs to `access_key_id`."""

    session_token: Secret | None = None
    """The token of temporary credentials."""

    credentials_file: Path | None = None
    """The key file of a GCS service account, or a file of S3 keys as Amazon's tools keep it. Not set: where the
    provider's own tools look."""

    profile: str | None = None
    """The name of the S3 keys in that file. Not set: `AWS_PROFILE`, or the keys that the provider's tools would use."""

    allow_http: bool = False
    """Send requests, and with them credentials, unencrypted: for a store on this machine."""

    attempt_timeout: timedelta = timedelta(seconds=10)
    """Give up one request after this long, and try again."""

    deadline: timedelta = timedelta(seconds=60)
    """Give up an operation with all its attempts after this long; a caller then gets a retriable error."""

    retries: int = Field(default=8, ge=0, le=100)
    """Try a failed request again at most this often."""

    @field_validator("url", "endpoint")
    @classmethod
    def _no_credentials_in_urls(cls, value: str | None) -> str | None:
        # A URL is logged and shown; what stands in it is no secret any more.
        if value is not None and "@" in urlsplit(value).netloc:
            raise ValueError("expected no credentials in the URL: use objects.access_key_id and its secret")
        return value

    @field_validator("url")
    @classmethod
    def _known_place(cls, value: str | None) -> str | None:
        if value is not None and value != "memory:" and "://" in value and urlsplit(value).scheme not in SCHEMES:
            raise ValueError("expected a directory, s3://BUCKET/PREFIX, gs://..., az://... or memory:")
        return value

    @property
    def is_remote(self) -> bool:
        """Whether the store is reached over a network."""
        return self.url is not None and urlsplit(self.url).scheme in ("s3", "gs", "az")

    @property
    def has_own_clock(self) -> bool:
        """Whether the store's date says anything about ours: one at an address of its own may be on this machine."""
        return self.is_remote and self.endpoint is None

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_an_address(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in ("http", "https"):
            raise ValueError("expected an address such as https://store.example:9000")
        return value

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("objects.access_key_id and objects.secret_access_key are given together or not at all")
        if self.attempt_timeout > self.deadline:
            raise ValueError("objects.attempt_timeout must be at most objects.deadline")
        if self.endpoint is not None and self.endpoint.startswith("http:") and not self.allow_http:
            raise ValueError("objects.endpoint is unencrypted: use https, or set objects.allow_http")
        return self
