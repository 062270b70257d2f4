"""Which store an address means.

memory:                     nothing survives the process
/dir, dir, file:///dir      a local directory, durable
s3://bucket/prefix          S3 and what speaks it (see `endpoint`)
gs://bucket/prefix          Google Cloud Storage
az://container/prefix       Azure Blob Storage
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from dray.clock import Clock
from dray.disk import Disk
from dray.errors import Invalid
from dray.ids import Entropy
from dray.objects.credentials import NoProfile, S3Keys, profile_for
from dray.objects.files import FileObjects
from dray.objects.memory import MemoryObjects
from dray.objects.paths import check_name
from dray.objects.port import Objects
from dray.objects.retry import LOCAL, RetryingObjects, RetryPolicy
from dray.offload import Offload

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        AzureStore,
        ClientConfig,
        GCSConfig,
        GCSStore,
        RetryConfig,
        S3Config,
        S3Credential,
        S3Store,
    )

    from dray.objects.cloud import CloudStore

_KNOWN: Final = "memory:, a directory, file:///dir, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a cloud store is reached. What is None comes from the environment, as the cloud's own tools read it."""

    endpoint: str | None = None
    """Base address of a store that is not the cloud's own; `http://` is taken only here."""
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    """S3 access key id, or Azure storage account."""
    secret_key: str | None = field(default=None, repr=False)
    """S3 secret key, or Azure account key."""
    session_token: str | None = field(default=None, repr=False)
    credentials_file: Path | None = None
    """Key file of a GCS service account, or file of S3 keys as Amazon's tools keep it."""
    profile: str | None = None
    """Which keys of that file; also without one, in the file where those tools keep it."""
    anonymous: bool = False
    virtual_hosted: bool = False
    connect_timeout: timedelta = timedelta(seconds=5)
    retry: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEffects:
    """What a store needs from its process."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    offload: Offload
    reads: Offload | None = None
    """Where objects of local files are read, so that slow reads delay no put. None: with the rest."""
    upkeep: Offload | None = None
    """Where they are listed and deleted. None: with the rest."""


async def open_store(address: str, options: StoreOptions, effects: StoreEffects) -> Objects:
    """The store at an address, with retries and metrics around it."""
    match _scheme(address):
        case "memory":
            return RetryingObjects(MemoryObjects(effects.clock), effects.clock, effects.entropy, LOCAL)
        case "file":
            files = FileObjects(
                _directory(address), effects.disk, effects.offload, effects.entropy,
                reads=effects.reads, upkeep=effects.upkeep,
            )  # fmt: skip
            await files.open()
            return RetryingObjects(files, effects.clock, effects.entropy, LOCAL)
        case "s3" | "gs" | "az" as scheme:
            return _cloud(scheme, address, options, effects)
        case scheme:
            raise Invalid("no store has this kind of address", address=address, scheme=scheme, known=_KNOWN)


def local_root(address: str) -> Path | None:
    """The directory that an address means; None where the store is elsewhere or nowhere."""
    return _directory(address) if _scheme(address) == "file" else None


def _scheme(address: str) -> str:
    if not address:
        raise Invalid("the address of the store is empty", known=_KNOWN)
    if address == "memory:":
        return "memory"
    return urlsplit(address).scheme if "://" in address else "file"


def _directory(address: str) -> Path:
    if "://" not in address:
        return Path(address)
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise Invalid("a file address has three slashes: file:///dir", address=address)
    return Path(unquote(parts.path))


def _cloud(scheme: str, address: str, options: StoreOptions, effects: StoreEffects) -> Objects:
    from dray.objects.cloud import CloudObjects  # a broker on local files does not load obstore

    parts = urlsplit(address)
    if not parts.netloc or parts.query or parts.fragment:
        raise Invalid("an address is scheme, bucket and prefix, no more", address=address, known=_KNOWN)
    prefix = parts.path.strip("/")
    if prefix:
        check_name(prefix)
    makers: dict[str, Callable[[str, str | None, StoreOptions, Clock], CloudStore]]
    makers = {"s3": _s3, "gs": _gcs, "az": _azure}
    try:
        store = makers[scheme](parts.netloc, prefix or None, options, effects.clock)
    except NoProfile:
        raise
    except Exception as error:  # obstore raises its own kinds for wrong settings; all mean the same here
        raise Invalid("the settings of the store are not usable", address=address, reason=str(error)[:200]) from error
    return RetryingObjects(CloudObjects(store), effects.clock, effects.entropy, options.retry)


def _client(options: StoreOptions) -> "ClientConfig":
    client: ClientConfig = {
        "allow_http": (options.endpoint or "").startswith("http://"),
        "connect_timeout": options.connect_timeout,
        # Deadlines are kept by the retry layer; this one only lets no request hang for ever.
        "timeout": timedelta(seconds=2 * (options.retry.attempt_seconds or 60)),
    }
    return client


def _no_retry(options: StoreOptions) -> "RetryConfig":
    return {"max_retries": 0, "retry_timeout": timedelta(seconds=options.retry.total_seconds)}


def _s3(bucket: str, prefix: str | None, options: StoreOptions, clock: Clock) -> "S3Store":
    from obstore.store import S3Store

    over_tls = not (options.endpoint or "").startswith("http://")
    config: S3Config = {
        # The payload's hash is left out of the signature where TLS protects it: it costs half of a put.
        "unsigned_payload": over_tls,
        "virtual_hosted_style_request": options.virtual_hosted,
        "conditional_put": "etag",
        "disable_bulk_delete": True,  # one name is one plain DELETE; not every store has the bulk form
    }
    if options.endpoint is not None:
        config["endpoint"] = options.endpoint
    profile, keys = None, None
    if options.access_key is not None and options.secret_key is not None:
        # Not by `config`: a token of other keys in the environment would be sent with these.
        given = S3Keys(access_key=options.access_key, secret_key=options.secret_key, token=options.session_token)
        keys = partial(_signing, lambda: given)
    elif not options.anonymous:
        profile = profile_for(clock, name=options.profile, keys=options.credentials_file)
        keys = None if profile is None else partial(_signing, profile.read)
    region = options.region or (None if profile is None else profile.region)
    if region is not None:
        config["region"] = region
    if options.anonymous:
        config["skip_signature"] = True
    return S3Store(
        bucket, prefix=prefix, config=config, client_options=_client(options), retry_config=_no_retry(options),
        credential_provider=keys,
    )  # fmt: skip


def _signing(read: Callable[[], S3Keys]) -> "S3Credential":
    keys = read()
    return {
        "access_key_id": keys.access_key, "secret_access_key": keys.secret_key, "token": keys.token,
        "expires_at": keys.expires,
    }  # fmt: skip


def _gcs(bucket: str, prefix: str | None, options: StoreOptions, _: Clock) -> "GCSStore":
    from obstore.store import GCSStore

    config: GCSConfig = {}
    if options.endpoint is not None:
        config["base_url"] = options.endpoint
    if options.credentials_file is not None:
        config["service_account"] = str(options.credentials_file)
    if options.anonymous:
        config["skip_signature"] = True
    return GCSStore(
        bucket, prefix=prefix, config=config, client_options=_client(options), retry_config=_no_retry(options)
    )


def _azure(container: str, prefix: str | None, options: StoreOptions, _: Clock) -> "AzureStore":
    from obstore.store import AzureStore

    config: AzureConfig = {}
    if options.endpoint is not None:
        config["endpoint"] = options.endpoint
    if options.access_key is not None:
        config["account_name"] = options.access_key
    if options.secret_key is not None:
        config["account_key"] = options.secret_key
    if options.anonymous:
        config["skip_signature"] = True
    return AzureStore(
        container, prefix=prefix, config=config, client_options=_client(options), retry_config=_no_retry(options)
    )
