"""Keys on a real broker: over HTTP and gRPC, beside the data directory; and what is written nowhere."""

import asyncio
import base64
import json
import re
import socket
import time
from collections.abc import Iterator
from datetime import timedelta

import grpc
import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dray.access.audit import check_chain, deeds
from dray.api.v1 import heaps_pb2 as pb
from dray.client import Client, CreatedKey, KeyInfo, KeyRole, NotFound, PermissionDenied, Unauthenticated
from dray.client.errors import ClientError
from dray.client.sync import Client as SyncClient
from dray.disk import LocalDisk
from dray.testing.broker import TestBroker, broker

SECRET = re.compile(rb"dray_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}")
LONG_S = 60


@pytest.fixture
def dray(tmp_path) -> Iterator[TestBroker]:
    with broker(tmp_path / "data") as running:
        yield running


def http(dray: TestBroker, key: str | None = None) -> httpx.Client:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=f"http://{dray.http}/v1", headers=headers, timeout=LONG_S)


def made(api: httpx.Client, **fields) -> tuple[str, str]:
    answer = api.post("/keys", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["key"]["id"], answer.json()["secret"]


def rpc(dray: TestBroker, service: str, name: str, request, answer, key: str | None = None):
    """One call as any client makes it; the answer, or how it failed."""
    with grpc.insecure_channel(dray.grpc) as channel:
        call = channel.unary_unary(
            f"/dray.v1.{service}/{name}", request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )  # fmt: skip
        metadata = () if key is None else (("authorization", f"Bearer {key}"),)
        try:
            return call(request, metadata=metadata, timeout=LONG_S)
        except grpc.RpcError as error:
            return error


def heaps(dray: TestBroker, key: str | None = None):
    return rpc(dray, "Heaps", "ListHeaps", pb.ListHeapsReq(), pb.ListHeapsResp, key)


@pytest.mark.slow
def test_the_first_key_closes_both_doors_and_everybody_needs_one_from_then_on(dray):
    """D-224, D-203, D-250: 401 and UNAUTHENTICATED; the Kafka port is as it was"""
    with http(dray) as nobody:
        assert nobody.get("/keys").json() == {"keys": []}
        assert isinstance(heaps(dray), pb.ListHeapsResp)
        admin_id, admin = made(nobody, name="ops")
        refused = nobody.get("/keys")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.json()["error"]["kind"] == "UNAUTHENTICATED"
        assert heaps(dray).code() is grpc.StatusCode.UNAUTHENTICATED
        assert httpx.get(f"http://{dray.http}/readyz").status_code == 200, "who watches needs none"
    with http(dray, admin) as api:
        assert [(one["id"], one["role"]) for one in api.get("/keys").json()["keys"]] == [(admin_id, "admin")]
        assert isinstance(heaps(dray, admin), pb.ListHeapsResp)
        for wrong in ("nonsense", admin[:-1] + "!", admin[:20] + "x" + admin[21:], "dray_" + "x" * 5_000):
            assert http(dray, wrong).get("/keys").status_code == 401, wrong[:80]
            assert heaps(dray, wrong).code() is grpc.StatusCode.UNAUTHENTICATED
        for scheme in ("Basic abc", "bearer", f"Bearer {admin} {admin}"):
            assert api.get("/keys", headers={"authorization": scheme}).status_code == 401
        assert api.get("/keys", headers={"authorization": f"bEARER {admin}"}).status_code == 200


@pytest.mark.slow
def test_a_role_decides_what_a_key_may_do(dray):
    """D-225: 403 and PERMISSION_DENIED, the same whether the heap exists or not"""
    with http(dray) as nobody:
        _, admin = made(nobody)
    with http(dray, admin) as api:
        (_, operator), (_, viewer) = made(api, name="worker"), made(api, role="viewer", expires_in="3600s")
    assert isinstance(
        rpc(dray, "Heaps", "MakeHeap", pb.MakeHeapReq(topic="jobs"), pb.Heap, operator), pb.Heap
    )  # fmt: skip
    for name, key in (("jobs", viewer), ("nowhere", viewer)):
        denied = rpc(dray, "Heaps", "Enqueue", pb.EnqueueReq(topic=name, payload=b"x"), pb.EnqueueResp, key)
        assert denied.code() is grpc.StatusCode.PERMISSION_DENIED
        assert name not in denied.details()
        assert rpc(dray, "Heaps", "Pop", pb.PopReq(topic=name), pb.PopResp, key).code() is (
            grpc.StatusCode.PERMISSION_DENIED
        )
    assert isinstance(rpc(dray, "Heaps", "Peek", pb.PeekReq(topic="jobs"), pb.PeekResp, viewer), pb.PeekResp)
    for key in (operator, viewer):
        with http(dray, key) as api:
            assert api.get("/keys").status_code == 403
            assert api.post("/keys", json={"name": "mine"}).status_code == 403
        denied = rpc(dray, "Keys", "CreateKey", pb.CreateKeyReq(name="mine"), pb.CreateKeyResp, key)
        assert denied.code() is grpc.StatusCode.PERMISSION_DENIED
    with http(dray, viewer) as api:
        assert api.post("/topics/orders/records", json={"records": [{"value": "eA=="}]}).status_code == 403


@pytest.mark.slow
def test_keys_over_grpc_are_made_listed_by_pages_and_revoked_when_asked_twice(dray):
    """D-212, D-253, A-29, A-33"""
    first = rpc(dray, "Keys", "CreateKey", pb.CreateKeyReq(name="ops"), pb.CreateKeyResp)
    admin = first.secret
    second = rpc(
        dray, "Keys", "CreateKey", pb.CreateKeyReq(name="w", principal="alice", role="viewer"), pb.CreateKeyResp, admin
    )  # fmt: skip
    assert (second.key.principal, second.key.role) == ("User:alice", "viewer")
    page = rpc(dray, "Keys", "ListKeys", pb.ListKeysReq(page_size=1), pb.ListKeysResp, admin)
    rest = rpc(
        dray, "Keys", "ListKeys", pb.ListKeysReq(page_size=1, page_token=page.next_page_token), pb.ListKeysResp, admin
    )  # fmt: skip
    assert [one.id for one in (*page.keys, *rest.keys)] == [first.key.id, second.key.id]
    assert rest.next_page_token == ""
    revoke = pb.RevokeKeyReq(id=second.key.id, force=True)
    asked = rpc(dray, "Keys", "RevokeKey", revoke, pb.Heap, admin)
    assert asked.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(heaps(dray, second.secret), pb.ListHeapsResp), "nothing was changed"
    revoke.confirmation = dict(asked.trailing_metadata())["dray-confirmation"]
    rpc(dray, "Keys", "RevokeKey", revoke, pb.Heap, admin)
    assert heaps(dray, second.secret).code() is grpc.StatusCode.UNAUTHENTICATED
    for wrong in (pb.CreateKeyReq(role="king"), pb.CreateKeyReq(principal="a:b:c"), pb.CreateKeyReq(name="x" * 101)):
        assert rpc(dray, "Keys", "CreateKey", wrong, pb.CreateKeyResp, admin).code() is (
            grpc.StatusCode.INVALID_ARGUMENT
        )
    assert rpc(dray, "Keys", "RevokeKey", pb.RevokeKeyReq(id="nobody00"), pb.Heap, admin).code() is (
        grpc.StatusCode.NOT_FOUND
    )


@pytest.mark.slow
def test_keys_over_http_are_revoked_when_asked_twice(dray):
    """D-212"""
    with http(dray) as nobody:
        _, admin = made(nobody)
    with http(dray, admin) as api:
        key_id, key = made(api, name="worker")
        asked = api.delete(f"/keys/{key_id}")
        assert asked.status_code == 428
        token = asked.json()["confirmation"]
        assert api.delete(f"/keys/{key_id}", params={"confirmation": token}).status_code == 428, "force is needed too"
        assert api.delete(f"/keys/{key_id}", params={"force": "true"}).status_code == 428
        assert http(dray, key).get("/heaps").status_code != 401, "nothing was changed"
        assert api.delete(f"/keys/{key_id}", params={"confirmation": token, "force": "true"}).status_code == 204
        assert http(dray, key).get("/keys").status_code == 401
        assert api.delete("/keys/nobody00", params={"force": "true"}).status_code == 404
        assert [one.get("revoked", False) for one in api.get("/keys").json()["keys"]] == [False, True]
        for body in ({"role": "king"}, {"name": "x" * 101}, {"expires_in": "0s"}, {"secret": "mine"}, []):
            assert api.post("/keys", json=body).status_code == 400, body


async def first_item(stream) -> pb.PopItem:
    """What a stream is given first."""
    async with asyncio.timeout(LONG_S):
        while not (got := await stream.read()).items:
            pass
    return got.items[0]


async def to_its_end(stream) -> None:
    async with asyncio.timeout(LONG_S):
        while (got := await stream.read()) is not grpc.aio.EOF:
            assert not got.items


@pytest.mark.slow
async def test_a_stream_ends_within_seconds_of_its_key_and_others_go_on(dray):
    """AK2, AC5, D-253: open streams too"""
    with http(dray) as nobody:
        _, admin = made(nobody)
    with http(dray, admin) as api:
        (key_id, key), (_, other) = made(api, name="worker"), made(api, name="other")
        token = api.delete(f"/keys/{key_id}").json()["confirmation"]
        async with grpc.aio.insecure_channel(dray.grpc) as channel, Client(dray.grpc, api_key=other) as client:
            open_stream = channel.stream_stream(
                "/dray.v1.Heaps/PopStream", request_serializer=pb.PopOpen.SerializeToString,
                response_deserializer=pb.PopDelivery.FromString,
            )  # fmt: skip
            await client.make_heap("jobs")
            streams = []
            for one in (key, other):
                stream = open_stream(metadata=(("authorization", f"Bearer {one}"),))
                await stream.write(pb.PopOpen(start=pb.PopStart(topic="jobs", credits=1)))
                await client.heap("jobs").enqueue({"for": one[:13]})
                assert (await first_item(stream)).payload
                streams.append(stream)
            assert api.delete(f"/keys/{key_id}", params={"confirmation": token, "force": "true"}).status_code == 204
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await to_its_end(streams[0])
            assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
            await client.heap("jobs").enqueue({"n": 1})
            await streams[1].write(pb.PopOpen(fc=pb.FlowControl(credits=1)))
            assert (await first_item(streams[1])).payload
            streams[1].cancel()


def lines_of(answer: httpx.Response) -> Iterator[dict]:
    return (json.loads(line) for line in answer.iter_lines() if line)


def stats(api: httpx.Client) -> dict:
    return api.get("/stats", params={"topic": "jobs"}).json()["heaps"][0]


def revoke(api: httpx.Client, key_id: str) -> None:
    token = api.delete(f"/keys/{key_id}").json()["confirmation"]
    assert api.delete(f"/keys/{key_id}", params={"confirmation": token, "force": "true"}).status_code == 204


@pytest.mark.slow
def test_a_stream_of_lines_ends_with_its_key_and_what_it_was_not_sent_is_for_others(dray):
    """HX2, HX4, AK2, AC5, D-253"""
    with http(dray) as nobody:
        _, admin = made(nobody)
    with http(dray, admin) as api:
        (key_id, key), (_, other) = made(api, name="worker"), made(api, name="other")
        api.post("/heaps", json={"topic": "jobs"})
        api.post("/enqueue", json={"topic": "jobs", "payload_json": 1})
        path, query = "/heaps/jobs/messages", {"max_unsettled": 1}
        with (
            http(dray, key) as worker, worker.stream("GET", path, params=query) as answer,
            http(dray, other) as second, second.stream("GET", path, params=query) as others,
        ):  # fmt: skip
            lines, held = lines_of(answer), lines_of(others)
            assert next(line for line in lines if "message_id" in line)["payload_json"] == 1
            revoke(api, key_id)
            last = list(lines)[-1]
            assert last["error"]["kind"] == "UNAUTHENTICATED"
            api.post("/enqueue", json={"topic": "jobs", "payload_json": 2})
            assert next(line for line in held if "message_id" in line)["payload_json"] == 2, "others go on"


@pytest.mark.slow
def test_a_stream_that_nobody_reads_ends_with_its_key_too(dray):
    """HX2, HX4: what it could not be sent is ready again"""
    with http(dray) as nobody:
        _, admin = made(nobody)
    with http(dray, admin) as api:
        key_id, key = made(api, name="worker")
        api.post("/heaps", json={"topic": "jobs"})
        large = base64.b64encode(bytes(1 << 20)).decode()
        for _ in range(40):
            assert api.post("/enqueue", json={"topic": "jobs", "payload": large}).status_code == 200
        host, _, port = dray.http.rpartition(":")
        with socket.create_connection((host, int(port)), LONG_S) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            silent.sendall(
                f"GET /v1/heaps/jobs/messages?max_unsettled=40&visibility=3600s HTTP/1.1\r\nHost: {dray.http}\r\n"
                f"Authorization: Bearer {key}\r\n\r\n".encode()
            )
            waited(lambda: stats(api).get("leased") == "40")
            revoke(api, key_id)
            waited(lambda: int(stats(api).get("ready", "0")) > 0)


def waited(is_so) -> None:
    until = time.monotonic() + 3 * LONG_S
    while not is_so():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.2)  # between two questions to a broker of another process


async def test_the_sdk_shows_its_key_and_is_told_when_it_is_wrong(dray):
    """D-230"""
    with http(dray) as nobody:
        _, admin = made(nobody)
    async with Client(dray.grpc, api_key=admin) as client:
        await client.make_heap("jobs")
        await client.heap("jobs").enqueue({"n": 1})
        await client.delete_heap("jobs")
    for wrong in (None, "nonsense"):
        async with Client(dray.grpc, api_key=wrong, timeout=LONG_S) as client:
            with pytest.raises(ClientError) as refusal:
                await client.make_heap("jobs")
            assert "key" in str(refusal.value)


@pytest.mark.slow
def test_everything_that_administrators_did_is_in_the_audit_file_and_no_secret_is_anywhere(tmp_path, capfd):
    """AC7, AC12, AK1, D-256, D-257: who, what, when, result, under which request; and a look at every byte"""
    data, disk = tmp_path / "data", LocalDisk()
    told = b""
    with broker(data) as dray:
        with http(dray) as nobody:
            admin_id, admin = made(nobody, name="ops")
        with http(dray, admin) as api:
            key_id, key = made(api, name="worker")
            assert isinstance(rpc(dray, "Heaps", "MakeHeap", pb.MakeHeapReq(topic="jobs"), pb.Heap, key), pb.Heap)
            again = rpc(dray, "Heaps", "MakeHeap", pb.MakeHeapReq(topic="jobs"), pb.Heap, key)
            assert again.code() is grpc.StatusCode.ALREADY_EXISTS
            for wrong in (key[:30] + "AAAA" + key[34:], admin + "x"):
                answer = http(dray, wrong).get("/keys")
                told += answer.content + str(answer.headers).encode()
            token = api.delete(f"/keys/{key_id}").json()["confirmation"]
            api.delete(f"/keys/{key_id}", params={"confirmation": token, "force": "true"})
            told += api.get("/keys").content
        told += httpx.get(f"http://{dray.http}/metrics").content + httpx.get(f"http://{dray.http}/").content
    out, err = capfd.readouterr()
    told += (out + err).encode()
    lines = list(deeds(data / "audit", disk))
    assert [(line["action"], line["result"], line["door"], line["credential"]) for line in lines] == [
        ("key.create", "done", "http", ""), ("key.create", "done", "http", admin_id),
        ("heap.make", "done", "grpc", key_id), ("heap.make", "conflict", "grpc", key_id),
        ("key.revoke", "done", "http", admin_id),
    ]  # fmt: skip
    assert all(line["address"] == "127.0.0.1" for line in lines)
    assert check_chain(data / "audit", disk).lines == len(lines)
    written = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    for text in (admin, key):
        secret = text.split("_")[2].encode()
        assert secret not in written
        assert secret not in told
    assert not SECRET.search(written + told)
    assert token.encode() not in written + told
    assert b"argon2id" not in told
    requests = [line["request"] for line in lines]
    assert len(set(requests)) == len(requests)
    log = b"".join(path.read_bytes() for path in (data / "meta").rglob("*") if path.is_file())
    assert all(request.encode() in log for request in requests), "the log is the second witness"


@pytest.mark.slow
async def test_callers_are_told_what_their_requests_are_named_in_the_audit_file(dray, tmp_path):
    """D-263: in a header over HTTP, in trailing metadata over gRPC, well or not; the SDK's errors have it too"""
    named: list[str] = []
    with http(dray) as api:
        named.append(api.post("/heaps", json={"topic": "one"}).headers["x-request-id"])
        refused = api.get("/heaps/nowhere")
        assert refused.status_code == 404
        assert refused.headers["x-request-id"] not in named
    async with grpc.aio.insecure_channel(dray.grpc) as channel:
        make = channel.unary_unary("/dray.v1.Heaps/MakeHeap", response_deserializer=pb.Heap.FromString)
        call = make(pb.MakeHeapReq(topic="two").SerializeToString(), timeout=LONG_S)
        assert (await call).topic == "two"
        named.append(dict(await call.trailing_metadata())["x-request-id"])
    async with Client(dray.grpc) as client:
        with pytest.raises(NotFound) as failed:
            await client.delete_heap("nowhere", force=True)
        assert failed.value.request
        assert failed.value.request not in named
    audited = [line["request"] for line in deeds(tmp_path / "data" / "audit", LocalDisk())]
    assert audited == named


@pytest.mark.slow
def test_an_audit_file_that_cannot_be_written_makes_the_broker_unready_and_consumers_go_on(tmp_path):
    """AU2: the deed is told, the next one is refused, nobody else notices, and it heals by itself"""
    data = tmp_path / "data"
    with broker(data) as dray, http(dray) as nobody:
        in_the_way = data / "audit" / "00000001.jsonl"
        in_the_way.mkdir()
        kafka = AdminClient({"bootstrap.servers": dray.bootstrap})
        kafka.create_topics([NewTopic("orders", 1)])["orders"].result(LONG_S)
        key_id, admin = made(nobody, name="ops")
        with http(dray, admin) as api:
            ready = httpx.get(f"http://{dray.http}/readyz")
            assert ready.status_code == 503
            assert "cannot be written" in ready.json()["audit"]
            assert api.get("/keys").status_code == 200, "what changes nothing goes on"
            refused = api.post("/keys", json={"name": "more"})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "nothing was done" in refused.json()["error"]["message"]
            making = rpc(dray, "Heaps", "MakeHeap", pb.MakeHeapReq(topic="jobs"), pb.Heap, admin)
            assert making.code() is grpc.StatusCode.UNAVAILABLE
            assert len(api.get("/keys").json()["keys"]) == 1
            produced = api.post("/topics/orders/records", json={"records": [{"value": "eA=="}]})
            assert produced.status_code == 200, produced.text
            in_the_way.rmdir()
            made(api, name="more")
            assert httpx.get(f"http://{dray.http}/readyz").status_code == 200
    lines = list(deeds(data / "audit", LocalDisk()))
    assert [(line["action"], line["credential"]) for line in lines] == [("key.create", ""), ("key.create", key_id)]


LOOKS = {"GetHeap", "ListHeaps", "Stats", "Peek"}
LOOKS_HTTP = {
    "/heaps", "/heaps/{topic}", "/stats", "/peek", "/heaps/{topic}/dlq", "/topics/{topic}/partitions/{partition}",
    "/topics/{topic}/partitions/{partition}/records",
}  # fmt: skip
"""What a viewer may ask: said once more, apart from the code."""


def call_raw(dray: TestBroker, service: str, name: str, packed: bytes, key: str | None) -> grpc.StatusCode:
    with grpc.insecure_channel(dray.grpc) as channel:
        metadata = () if key is None else (("authorization", f"Bearer {key}"),)
        try:
            channel.unary_unary(f"/dray.v1.{service}/{name}")(packed, metadata=metadata, timeout=LONG_S)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.mark.slow
def test_every_call_of_both_doors_needs_a_key_and_its_right(dray):
    """AC2, HG1, GA1, D-203: whatever is described is guarded"""
    with http(dray) as nobody:
        _, admin = made(nobody)
    with http(dray, admin) as api:
        _, viewer = made(api, role="viewer")
        described = api.get("/openapi.json").json()["paths"]
    for key, status in ((None, 401), (admin, 200), (viewer, 200)):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        told = httpx.get(f"http://{dray.http}/iceberg/v1/config", headers=headers)
        assert told.status_code == status, "tables too"
    services = pb.DESCRIPTOR.services_by_name
    unary = [(service, one) for service in ("Heaps", "Keys") for one in services[service].methods_by_name
             if not services[service].methods_by_name[one].client_streaming]  # fmt: skip
    assert len(unary) == 21
    batch = pb.EnqueueBatchReq(items=[pb.EnqueueReq(topic="x")]).SerializeToString()
    for service, name in unary:
        packed = batch if name == "EnqueueBatch" else b""
        assert call_raw(dray, service, name, packed, None) is grpc.StatusCode.UNAUTHENTICATED, name
        code = call_raw(dray, service, name, packed, viewer)
        assert (code is grpc.StatusCode.PERMISSION_DENIED) == (name not in LOOKS), (name, code)
    asked = 0
    with http(dray) as nobody, http(dray, viewer) as looking:
        for path, methods in described.items():
            at = re.sub(r"\{partition\}", "0", re.sub(r"\{\w+\}", "nowhere0", path))
            for method in methods:
                given = {} if method in ("get", "delete") else {"json": {"topic": "nowhere"}}
                assert nobody.request(method, at, **given).status_code == 401, (method, path)
                status = looking.request(method, at, **given).status_code
                if method == "get" and path in LOOKS_HTTP:
                    assert status in (200, 400, 404), (method, path, status)
                else:
                    assert status in (400, 403), (method, path, status)
                asked += 1
    assert asked > 25


@pytest.mark.slow
@pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])
def test_the_client_makes_lists_and_revokes_keys(dray, blocking):
    """D-250, D-257, AC7: the secret is told once, works at once, and does not show itself"""
    first = asyncio.run(_first_key(dray))
    assert first.info.role is KeyRole.ADMIN
    assert first.secret not in repr(first)
    if blocking:
        with SyncClient(dray.grpc, api_key=first.secret) as admin:
            second = admin.keys.create("ci", role=KeyRole.VIEWER, expires_in=3_600)
            listed = admin.keys.list()
            admin.keys.revoke(second.info.id)
            left = admin.keys.list()
    else:
        second, listed, left = asyncio.run(_life_of_a_key(dray, first.secret))
    assert [(one.name, one.role, one.revoked) for one in listed] == [
        ("ops", KeyRole.ADMIN, False), ("ci", KeyRole.VIEWER, False),
    ]  # fmt: skip
    assert second.info.expires - second.info.created == timedelta(hours=1)
    assert [one.revoked for one in left] == [False, True]
    with SyncClient(dray.grpc, api_key=second.secret) as revoked, pytest.raises(Unauthenticated):
        revoked.heaps()


async def _first_key(dray: TestBroker) -> CreatedKey:
    async with Client(dray.grpc) as nobody:
        return await nobody.keys.create("ops")


async def _life_of_a_key(dray: TestBroker, secret: str) -> tuple[CreatedKey, list[KeyInfo], list[KeyInfo]]:
    async with Client(dray.grpc, api_key=secret) as admin:
        made = await admin.keys.create("ci", role=KeyRole.VIEWER, expires_in=timedelta(hours=1))
        listed = await admin.keys.list()
        await admin.keys.revoke(made.info.id)
        return made, listed, await admin.keys.list()


def test_only_administrators_make_keys_and_an_unknown_one_is_told(dray):
    """AC2"""
    first = asyncio.run(_first_key(dray))
    with SyncClient(dray.grpc, api_key=first.secret) as admin:
        worker = admin.keys.create("worker")
        assert worker.info.role is KeyRole.OPERATOR
        with pytest.raises(NotFound, match="no such key"):
            admin.keys.revoke("nosuchid")
    with SyncClient(dray.grpc, api_key=worker.secret) as operator:
        for attempt in (operator.keys.create, operator.keys.list, lambda: operator.keys.revoke(first.info.id)):
            with pytest.raises(PermissionDenied):
                attempt()
