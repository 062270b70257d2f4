"""Faults between us and a real S3 server, as stores and networks have them: the list S1 to S10, each by its name."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest

from dray.ids import SeededEntropy
from dray.objects.opening import open_store
from dray.objects.port import (
    AlreadyExists,
    Denied,
    NoSuchObject,
    Objects,
    PutUnknown,
    ShortObject,
    StoreUnavailable,
)
from dray.objects.probe import NoCreateOnly, probe
from dray.objects.retry import RetryPolicy
from tests.objects.fault_proxy import Asked, FaultProxy, Hurt, fault_proxy, first
from tests.objects.s3_double import s3_double
from tests.objects.servers import S3Server, effects, versity

pytestmark = pytest.mark.peers

QUICK = RetryPolicy(first_pause_seconds=0.001, longest_pause_seconds=0.05, attempt_seconds=30)
ONCE = dataclasses.replace(QUICK, attempts=1)
HASTY = dataclasses.replace(QUICK, attempt_seconds=1.5)
BODY = bytes(range(256)) * 64


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versity(tmp_path_factory.mktemp("s3")) as running:
        yield running


class Behind:
    """A prefix of a new bucket: through the proxy, and past it."""

    def __init__(self, server: S3Server, proxy: FaultProxy) -> None:
        self.server, self.proxy = server, proxy
        self.url = server.url()

    async def open(self, policy: RetryPolicy = QUICK) -> Objects:
        options = dataclasses.replace(self.server.options, endpoint=self.proxy.endpoint, retry=policy)
        return await open_store(self.url, options, effects())

    async def truth(self) -> dict[str, bytes]:
        direct = await open_store(self.url, self.server.options, effects())
        return {info.path: bytes(await direct.get(info.path)) async for info in direct.list("")}


@pytest.fixture
async def behind(server: S3Server) -> AsyncIterator[Behind]:
    assert server.options.endpoint is not None
    async with fault_proxy(server.options.endpoint) as proxy:
        yield Behind(server, proxy)


@pytest.mark.parametrize("hurt", [Hurt.SLOW_DOWN, Hurt.TOO_MANY, Hurt.BROKEN])
async def test_s1_a_store_that_is_busy_is_asked_again_until_it_answers(behind: Behind, hurt: Hurt) -> None:
    """S1: every call of the port."""
    objects, proxy = await behind.open(), behind.proxy
    proxy.choose = first(hurt, "PUT", 3)
    await objects.put("a", [BODY])
    for kind in ("GET", "HEAD", "LIST", "DELETE"):
        proxy.choose = first(hurt, kind, 2)
        match kind:
            case "GET":
                assert await objects.get("a") == BODY
            case "HEAD":
                assert (await objects.head("a")).size == len(BODY)
            case "LIST":
                assert [info.path async for info in objects.list("")] == ["a"]
            case "DELETE":
                await objects.delete("a")
    assert proxy.hurt[hurt] == 11
    assert await behind.truth() == {}


async def test_s1_an_outage_is_not_met_with_a_storm(behind: Behind) -> None:
    """S1: the budget of retries; callers are told that nothing happened, and may shed."""
    objects, proxy = await behind.open(), behind.proxy
    proxy.choose = first(Hurt.SLOW_DOWN, "PUT", 1_000_000)
    told = await asyncio.gather(*(objects.put(f"a/{n}", [b"x"]) for n in range(100)), return_exceptions=True)
    assert {type(one) for one in told} == {StoreUnavailable}
    assert proxy.counts["PUT"] <= 100 + QUICK.budget + 100 * 0.1
    proxy.choose = lambda _: None
    await objects.put("a/1", [b"x"])
    assert await behind.truth() == {"a/1": b"x"}


@pytest.mark.parametrize("hurt", [Hurt.LOST, Hurt.BROKEN_AFTER, Hurt.LATE])
async def test_s2_a_put_whose_reply_is_lost_is_found_to_have_happened(behind: Behind, hurt: Hurt) -> None:
    """S2, O8: and where nobody may look again, its end is unknown."""
    objects, proxy = await behind.open(HASTY), behind.proxy
    proxy.choose = first(hurt, "PUT")
    await objects.put("a", [BODY])
    assert (proxy.counts["PUT"], proxy.hurt[hurt]) == (1, 1), "read back, not sent again"
    assert await behind.truth() == {"a": BODY}
    hasty = await behind.open(dataclasses.replace(HASTY, attempts=1))
    proxy.choose = first(hurt, "PUT")
    with pytest.raises(PutUnknown):
        await hasty.put("b", [BODY])
    assert await behind.truth() == {"a": BODY, "b": BODY}


async def test_s3_a_412_of_our_own_write_is_success_and_of_anothers_a_conflict(behind: Behind) -> None:
    """S3, O3: the reading back is itself refused at first, so the put is sent again and meets itself."""
    objects, proxy = await behind.open(), behind.proxy
    lost, unread = first(Hurt.LOST, "PUT"), first(Hurt.MISSING, "HEAD")
    proxy.choose = lambda asked: lost(asked) or unread(asked)
    await objects.put("a", [BODY])
    assert proxy.counts["PUT"] == 2
    proxy.choose = first(Hurt.LOST, "PUT")
    with pytest.raises(AlreadyExists):
        await objects.put("a", [b"other"])
    assert await behind.truth() == {"a": BODY}


async def test_s4_a_409_is_tried_again_and_is_no_conflict(behind: Behind) -> None:
    """S4"""
    objects, proxy = await behind.open(), behind.proxy
    proxy.choose = first(Hurt.CONFLICT, "PUT", 3)
    await objects.put("a", [BODY])
    assert await behind.truth() == {"a": BODY}
    proxy.choose = first(Hurt.CONFLICT, "PUT", 1_000_000)
    with pytest.raises(StoreUnavailable):
        await objects.put("b", [BODY])
    assert await behind.truth() == {"a": BODY}


async def test_s5_an_error_in_a_body_of_200_is_not_taken_for_success(behind: Behind) -> None:
    """S5: S3 does so for uploads in parts, which we have none of; a put that is answered like that is not believed."""
    objects, proxy = await behind.open(), behind.proxy
    proxy.choose = first(Hurt.ERROR_IN_BODY, "PUT", 2)
    await objects.put("a", [BODY])
    assert proxy.hurt[Hurt.ERROR_IN_BODY] == 2
    assert await behind.truth() == {"a": BODY}


async def test_s6_no_part_of_an_upload_is_ever_left(behind: Behind) -> None:
    """S6: an object of any size is one request, and is there as a whole or not at all."""
    objects, proxy = await behind.open(), behind.proxy
    large = [bytes(1 << 20)] * 24
    proxy.choose = first(Hurt.RESET, "PUT", 2)
    await objects.put("large", large)
    assert {asked.kind for asked in proxy.seen} <= {"PUT", "HEAD", "GET"}
    assert not [asked.path for asked in proxy.seen if "?" in asked.path]
    assert {path: len(content) for path, content in (await behind.truth()).items()} == {"large": 24 << 20}
    uploads = behind.server.client.list_multipart_uploads(Bucket=behind.url.split("/")[2])
    assert not uploads.get("Uploads")


@pytest.mark.parametrize("hurt", [Hurt.TRUNCATED, Hurt.SHORT, Hurt.LONG, Hurt.WHOLE])
@pytest.mark.parametrize("span", [(0, None), (1_000, 9_000), (1_000, None)])
async def test_s7_an_answer_of_a_wrong_length_is_never_given_out(
    behind: Behind, hurt: Hurt, span: tuple[int, int | None]
) -> None:
    """S7: asked again; and if it stays like that, an error and no bytes.

    Of a whole object nobody but its reader knows the length: a shorter one that says so passes here, and is found out
    by the checksum that every kind of object carries (see the tests of brokers).
    """
    start, end = span
    if hurt in (Hurt.SHORT, Hurt.LONG) and span == (0, None):
        hurt = Hurt.TRUNCATED
    objects, proxy = await behind.open(), behind.proxy
    await objects.put("a", [BODY])
    proxy.choose = first(hurt, "GET")
    assert await _got(objects, start, end) == BODY[start:end]
    assert proxy.hurt[hurt] == 1
    proxy.choose = first(hurt, "GET", 1_000_000)
    try:
        found = await _got(objects, start, end)
    except (StoreUnavailable, ShortObject):
        found = BODY[start:end]
    assert found == BODY[start:end]


async def _got(objects: Objects, start: int, end: int | None) -> bytes:
    return bytes(await objects.get("a", start, end))


async def test_s7_what_is_said_to_be_missing_is_told_as_such_and_found_when_it_is_back(behind: Behind) -> None:
    """S7: a clone that forgets for a while; who reads decides, and the store keeps what it has."""
    objects, proxy = await behind.open(), behind.proxy
    await objects.put("a", [BODY])
    proxy.choose = first(Hurt.MISSING, "GET")
    with pytest.raises(NoSuchObject):
        await objects.get("a")
    assert await objects.get("a") == BODY


@pytest.mark.parametrize("hurt", [Hurt.RESET, Hurt.TRUNCATED, Hurt.TRICKLE, Hurt.LATE])
async def test_s8_a_connection_that_breaks_or_crawls_ends_by_the_deadline(behind: Behind, hurt: Hurt) -> None:
    """S8: an attempt does not wait for ever, and the next one is another connection."""
    objects, proxy = await behind.open(HASTY), behind.proxy
    await objects.put("a", [BODY])
    proxy.choose = first(hurt, "GET")
    assert await objects.get("a") == BODY
    assert proxy.hurt[hurt] == 1
    once = await behind.open(dataclasses.replace(HASTY, attempts=1))
    proxy.choose = first(hurt, "GET")
    with pytest.raises(StoreUnavailable):
        await once.get("a")


async def test_s8_credentials_that_expired_and_names_that_nobody_knows_are_told(behind: Behind) -> None:
    """S8: 403 is not asked again; a name that does not resolve means that nothing happened."""
    objects, proxy = await behind.open(), behind.proxy
    proxy.choose = first(Hurt.EXPIRED, "PUT")
    with pytest.raises(Denied, match="refused the credentials"):
        await objects.put("a", [b"x"])
    assert proxy.counts["PUT"] == 1
    nowhere = dataclasses.replace(behind.server.options, endpoint="http://store.invalid:9000", retry=ONCE)
    for call in ((there := await open_store(behind.url, nowhere, effects())).put("a", [b"x"]), there.get("a")):
        with pytest.raises(StoreUnavailable):
            await call


async def test_s9_a_listing_that_breaks_goes_on_behind_the_last_name(behind: Behind) -> None:
    """S9: every page of it, none twice; and a name that a listing hides is there all the same."""
    objects, proxy = await behind.open(), behind.proxy
    names = [f"many/{number:05}" for number in range(1_050)]
    for at in range(0, len(names), 100):
        await asyncio.gather(*(objects.put(name, [b"."]) for name in names[at : at + 100]))
    pages = iter([None, Hurt.RESET, None, Hurt.TRUNCATED])
    proxy.choose = lambda asked: next(pages, None) if asked.kind == "LIST" else None
    assert [info.path async for info in objects.list("many/")] == names
    await objects.put("few/1", [b"."])
    await objects.put("few/2", [b"."])
    proxy.choose = first(Hurt.HIDDEN, "LIST")
    assert [info.path async for info in objects.list("few/")] == ["few/1"]
    assert (await objects.head("few/2")).size == 1
    with pytest.raises(AlreadyExists):
        await objects.put("few/2", [b"other"])


async def test_s10_a_store_that_ignores_conditions_is_refused() -> None:
    """S10, R-217: also when its answers come late or are lost."""
    async with s3_double() as double, fault_proxy(double.endpoint) as proxy:
        double.honours_conditions = False
        server = S3Server(_any_keys(double.endpoint))
        options = dataclasses.replace(server.options, endpoint=proxy.endpoint, retry=QUICK)
        objects = await open_store("s3://bucket/dray", options, effects())
        lost, slow = first(Hurt.LOST, "PUT"), first(Hurt.SLOW_DOWN, "PUT", 2)

        def choose(asked: Asked) -> Hurt | None:
            return lost(asked) or slow(asked)

        proxy.choose = choose
        with pytest.raises(NoCreateOnly, match="use a store that honours If-None-Match"):
            await probe(objects, SeededEntropy(1))
        assert double.objects == {}


def _any_keys(endpoint: str):
    from dray.objects.opening import StoreOptions

    return StoreOptions(endpoint=endpoint, region="us-east-1", access_key="any", secret_key="any")
