"""Where the keys of a store come from, as the tools of each cloud have it; and that nobody ever reads them in a log."""

import asyncio
import dataclasses
import io
import json
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stderr
from datetime import timedelta
from pathlib import Path

import pytest

from dray.errors import DrayError
from dray.objects.cloud import NoCredentials
from dray.objects.credentials import NoProfile
from dray.objects.opening import StoreOptions, open_store
from dray.objects.port import Denied, Objects
from dray.objects.retry import RetryPolicy
from dray.telemetry import configure_logging
from tests.objects.gcs_double import gcs_double
from tests.objects.s3_double import S3Double, s3_double
from tests.objects.servers import effects

ONCE = RetryPolicy(attempts=2, attempt_seconds=20, first_pause_seconds=0.001)
SECRET = "hidden/secret+key"
OTHERS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_METADATA_ENDPOINT"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"),
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_TOKEN"),
)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user with nothing."""
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.fixture
async def double() -> AsyncIterator[S3Double]:
    async with s3_double() as server:
        yield server


async def store(double: S3Double, **options: object) -> Objects:
    made = StoreOptions(endpoint=double.endpoint, retry=ONCE)
    return await open_store("s3://bucket/prefix", dataclasses.replace(made, **options), effects())  # type: ignore[arg-type]


async def used(double: S3Double, **options: object) -> tuple[str, str, str | None]:
    """The key, the region and the token that a put was signed with."""
    objects = await store(double, **options)
    await objects.put(f"a{len(double.objects)}", [b"x"])
    signed = double.headers[-1]["authorization"].partition("Credential=")[2].split("/")
    assert SECRET not in str(double.headers)
    return signed[0], signed[2], double.headers[-1].get("x-amz-security-token")


def keys(name: str, key: str, *, token: str = "", region: str = "") -> str:
    said = {"aws_access_key_id": key, "aws_secret_access_key": SECRET, "aws_session_token": token, "region": region}
    return "\n".join([f"[{name}]", *(f"{field} = {value}" for field, value in said.items() if value)])


async def test_keys_of_s3_are_looked_for_in_the_usual_order(
    double: S3Double, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings, a profile that was named, the environment, the default profile."""
    (home / ".aws/credentials").write_text(f"{keys('default', 'DEFAULT')}\n\n{keys('work', 'WORK', token='T1')}\n")
    (home / ".aws/config").write_text("[default]\nregion = eu-west-1\n[profile work]\nregion = eu-central-1\n")
    assert await used(double) == ("DEFAULT", "eu-west-1", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "T0")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert await used(double) == ("ENVIRONMENT", "us-west-2", "T0")
    assert await used(double, profile="work") == ("WORK", "eu-central-1", "T1")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert await used(double) == ("WORK", "eu-central-1", "T1")
    assert await used(double, access_key="SETTINGS", secret_key=SECRET, region="x") == ("SETTINGS", "x", None)


async def test_keys_may_lie_in_any_file_and_are_read_again(
    double: S3Double, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools replace temporary keys under a running broker."""
    elsewhere = home / "keys"
    elsewhere.write_text(keys("default", "ONE", region="r"))
    assert await used(double, credentials_file=elsewhere) == ("ONE", "r", None)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(elsewhere))
    assert await used(double) == ("ONE", "r", None)
    elsewhere.write_text(keys("default", "TWO", token="T2", region="r"))
    assert await used(double) == ("TWO", "r", "T2")


@pytest.mark.parametrize(
    "content", ["", "[other]\nregion=x", "[profile]\n", "no ini at all", "[default]\nrole_arn = arn:aws:iam::1:role/x"]
)
async def test_a_profile_without_keys_says_what_to_do(double: S3Double, home: Path, content: str) -> None:
    """Bad input."""
    (home / ".aws/credentials").write_text(content)
    with pytest.raises(NoProfile, match="add aws_access_key_id and aws_secret_access_key"):
        await store(double, profile="default")


@asynccontextmanager
async def metadata_service(key: str) -> AsyncIterator[str]:
    """The address inside a machine or a container that hands out the keys of its role."""
    given = {
        "AccessKeyId": key, "SecretAccessKey": SECRET, "Token": "role", "Expiration": "2099-01-01T00:00:00Z",
        "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
    }  # fmt: skip

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode()
                body = json.dumps(given) if path.endswith(("/machine", "/container")) else "machine"
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_the_role_of_a_machine_or_a_container_gives_keys(
    double: S3Double, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with metadata_service("ROLE") as address:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", address)
        assert await used(double, region="r") == ("ROLE", "r", "role")
        monkeypatch.delenv("AWS_METADATA_ENDPOINT")
        (home / "token").write_text("of the pod")
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{address}/container")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(home / "token"))
        assert await used(double, region="r") == ("ROLE", "r", "role")


async def test_where_nobody_gives_any_keys_the_error_says_how_to(double: S3Double) -> None:
    """Bad input: no machine of a cloud, no files, nothing in the environment."""
    hasty = dataclasses.replace(ONCE, attempts=1)
    objects = await store(double, region="r", retry=hasty, connect_timeout=timedelta(milliseconds=200))
    with pytest.raises(NoCredentials, match=r"objects\.access_key_id and its secret"):
        await objects.get("a")


async def test_gcs_takes_a_key_file_from_the_settings_or_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gcs_double() as gcs:
        gcs.buckets["bucket"] = {}
        key = gcs.key_file(home / "key.json")
        for number in range(2):
            options = StoreOptions(endpoint=gcs.endpoint, credentials_file=key if not number else None, retry=ONCE)
            objects = await open_store("gs://bucket/prefix", options, effects())
            await objects.put(f"a{number}", [b"x"])
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
        assert sorted(gcs.buckets["bucket"]) == ["prefix/a0", "prefix/a1"]


async def test_azure_takes_its_key_from_the_environment(double: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "ACCOUNT")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "aGlkZGVuLWtleQ==")
    objects = await open_store("az://box/prefix", StoreOptions(endpoint=double.endpoint, retry=ONCE), effects())
    await objects.put("a", [b"x"])
    assert double.headers[-1]["authorization"].startswith("SharedKey ACCOUNT:")


@pytest.mark.parametrize("answer", ["403 AccessDenied", "500 InternalError", "close", "404 NoSuchBucket", "serve"])
@pytest.mark.parametrize("scheme", ["s3", "az", "sas"])
async def test_no_key_is_in_any_error_or_log_line(
    double: S3Double, monkeypatch: pytest.MonkeyPatch, scheme: str, answer: str
) -> None:
    """Right and wrong keys, whatever the store answers: causes and tracebacks too, at the most talkative level."""
    keys = {"s3": SECRET, "az": "aGlkZGVuL3NlY3JldCtrZXk=", "sas": "hidden-signature"}
    options = StoreOptions(endpoint=double.endpoint, region="r", access_key="NAME", secret_key=keys[scheme], retry=ONCE)
    if scheme == "sas":
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2021&sr=c&sig=hidden-signature&sp=rw")
        options = dataclasses.replace(options, secret_key=None)
    said = io.StringIO()
    with redirect_stderr(said):
        configure_logging("debug")
        objects = await open_store(f"{'s3' if scheme == 's3' else 'az'}://bucket/p", options, effects())
        for call in (lambda: objects.put("a", [b"x"]), lambda: objects.get("a"), lambda: objects.head("a")):
            double.plan[:] = [answer] * ONCE.attempts
            try:
                await call()
            except DrayError as error:
                said.write("".join(traceback.format_exception(error)) + f"{error!r} {error.facts}")
    configure_logging("warning")
    assert scheme != "sas" or "sig=hidden-signature" in str(double.targets), "it was used"
    for form in (keys[scheme], keys[scheme].replace("+", "%2B").replace("/", "%2F")):
        assert form not in said.getvalue()
    assert "hidden" not in repr(options)


async def test_a_refusal_names_what_to_do(double: S3Double) -> None:
    objects = await store(double, access_key="NAME", secret_key=SECRET, region="r")
    double.plan.append("403 SignatureDoesNotMatch")
    with pytest.raises(Denied, match="correct them, or allow this operation"):
        await objects.put("a", [b"x"])
