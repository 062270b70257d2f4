"""What a cloud store answers, and what the caller is told to do next."""

import dataclasses
from collections.abc import AsyncIterator

import pytest
from tests.objects.contract import ObjectsContract
from tests.objects.s3_double import S3Double, s3_double
from tests.objects.servers import effects

from dray.errors import Invalid
from dray.ids import SeededEntropy
from dray.objects.cloud import CloudObjects, NoBucket
from dray.objects.opening import StoreOptions, open_store
from dray.objects.port import AlreadyExists, Denied, Objects, PutUnknown, ShortObject, StoreUnavailable
from dray.objects.probe import NoCreateOnly, probe
from dray.objects.retry import RetryingObjects, RetryPolicy

ONCE = RetryPolicy(attempts=1, attempt_seconds=5)
QUICK = RetryPolicy(first_pause_seconds=0.001, attempt_seconds=5)


class TestCloudOverMemory(ObjectsContract):
    """The adapter itself, over obstore's own store."""

    @pytest.fixture
    def objects(self) -> CloudObjects:
        from obstore.store import MemoryStore

        return CloudObjects(MemoryStore())


@pytest.fixture
async def double() -> AsyncIterator[S3Double]:
    async with s3_double() as server:
        yield server


async def store_at(double: S3Double, policy: RetryPolicy = ONCE) -> Objects:
    options = StoreOptions(
        endpoint=double.endpoint, region="us-east-1", access_key="AK", secret_key="hidden-secret", retry=policy
    )
    return await open_store("s3://bucket/prefix", options, effects())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("503 SlowDown", StoreUnavailable),
        ("429 TooManyRequests", StoreUnavailable),
        ("400 RequestTimeout", StoreUnavailable),
        ("403 AccessDenied", Denied),
        ("401 Unauthorized", Denied),
        ("400 ExpiredToken", Denied),
        ("404 NoSuchBucket", NoBucket),
        ("409 ConditionalRequestConflict", StoreUnavailable),
        ("500 InternalError", PutUnknown),
        ("503 ServiceUnavailable", PutUnknown),
        ("504 GatewayTimeout", PutUnknown),
        ("close", PutUnknown),
        ("apply, close", PutUnknown),
    ],
)
async def test_each_answer_to_a_put_says_what_to_do_next(double: S3Double, answer: str, error: type) -> None:
    """S1, S2, S4, S8, E1: nothing happened only where that is sure."""
    objects = await store_at(double)
    double.plan.append(answer)
    with pytest.raises(error) as caught:
        await objects.put("a", [b"x"])
    assert type(caught.value) is error
    assert "hidden-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        "503 SlowDown",
        "409 ConditionalRequestConflict",
        "500 InternalError",
        "close",
        "apply, close",
        "400 RequestTimeout",
    ],
)
async def test_with_retries_every_passing_fault_ends_in_one_put(double: S3Double, answer: str) -> None:
    """S2, S3, S4: neither a lost reply nor a 409 becomes a conflict."""
    objects = await store_at(double, QUICK)
    double.plan += [answer, "serve", answer]
    await objects.put("a", [b"x", b"y"])
    assert double.objects == {"/bucket/prefix/a": b"xy"}


async def test_a_409_over_another_object_is_still_a_conflict(double: S3Double) -> None:
    objects = await store_at(double, QUICK)
    double.objects["/bucket/prefix/a"] = b"other"
    double.plan.append("409 ConditionalRequestConflict")
    with pytest.raises(AlreadyExists):
        await objects.put("a", [b"x"])
    assert double.objects == {"/bucket/prefix/a": b"other"}


async def test_a_put_is_one_conditional_request(double: S3Double) -> None:
    objects = await store_at(double)
    await objects.put("a", [bytes(1 << 20)] * 8)
    assert double.requests == ["PUT"], "no multipart, no retries of the library"
    assert double.headers[0]["if-none-match"] == "*"
    assert double.headers[0]["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD", "without TLS the payload is signed"


async def test_a_store_that_is_not_there_means_that_nothing_happened(double: S3Double) -> None:
    options = StoreOptions(
        endpoint="http://127.0.0.1:1", region="x", access_key="a", secret_key="b", retry=dataclasses.replace(ONCE)
    )
    objects = await open_store("s3://bucket", options, effects())
    for call in (objects.put("a", [b"x"]), objects.get("a"), objects.head("a"), objects.delete("a")):
        with pytest.raises(StoreUnavailable):
            await call


async def test_a_put_without_an_answer_is_unknown(double: S3Double) -> None:
    """E1, S8"""
    objects = await store_at(double, RetryPolicy(attempts=1, attempt_seconds=0.2))
    double.plan.append("hang")
    with pytest.raises(PutUnknown, match="no answer in time"):
        await objects.put("a", [b"x"])


@pytest.mark.parametrize(
    ("answer", "error"),
    [("503 SlowDown", StoreUnavailable), ("close", StoreUnavailable), ("403 AccessDenied", Denied)],
)
async def test_reads_are_unavailable_or_denied_but_never_unknown(double: S3Double, answer: str, error: type) -> None:
    objects = await store_at(double)
    for call in (objects.get("a"), objects.get("a", 0, 3), objects.head("a"), objects.delete("a")):
        double.plan.append(answer)
        with pytest.raises(error):
            await call
    double.plan.append(answer)
    with pytest.raises(error):
        assert [info async for info in objects.list("")] == []


async def test_an_answer_with_fewer_bytes_than_asked_for_is_short(double: S3Double) -> None:
    """S7"""
    objects = await store_at(double)
    double.objects["/bucket/prefix/a"] = b"12345"
    with pytest.raises(ShortObject):
        await objects.get("a", 2, 9)


async def test_a_store_that_ignores_conditions_is_found_out_over_the_wire(double: S3Double) -> None:
    """R-217, S10; bad input: a store without conditional put."""
    double.honours_conditions = False
    objects = await store_at(double)
    with pytest.raises(NoCreateOnly, match="honours If-None-Match"):
        await probe(objects, SeededEntropy(1))
    assert double.objects == {}, "the probe cleans up"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ftp://bucket/x",
        "s3://",
        "s3:///prefix",
        "s3://bucket/a//b",
        "s3://bucket/../x",
        "s3://b/x?y=1",
        "file://dir/x",
    ],
)
async def test_a_wrong_address_is_refused_with_the_known_forms(address: str) -> None:
    with pytest.raises(Invalid):
        await open_store(address, StoreOptions(), effects())


async def test_an_address_chooses_its_store(tmp_path) -> None:
    for address in ("memory:", str(tmp_path / "plain"), f"file://{tmp_path}/url%20here"):
        objects = await open_store(address, StoreOptions(), effects())
        assert isinstance(objects, RetryingObjects)
        await objects.put("a/b", [b"x"])
        assert bytes(await objects.get("a/b")) == b"x"
    assert (tmp_path / "plain" / "a" / "b").read_bytes() == b"x"
    assert (tmp_path / "url here" / "a" / "b").read_bytes() == b"x"


@pytest.mark.parametrize("address", ["s3://bucket/p", "gs://bucket/p", "az://container/p"])
async def test_every_cloud_is_opened_without_asking_it(address: str) -> None:
    options = StoreOptions(region="us-east-1", access_key="account", secret_key="c2VjcmV0", anonymous=True)
    assert isinstance(await open_store(address, options, effects()), RetryingObjects)


def test_credentials_are_not_shown() -> None:
    options = StoreOptions(access_key="AK", secret_key="hidden-secret", session_token="hidden-token")
    assert "hidden" not in repr(options)
