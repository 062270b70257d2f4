"""A broker that was told to stop: unready at once, and clients are sent on with the address of the new leader."""

import asyncio
import json
import urllib.error
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dray.node.roles import broker as role
from tests.golden.asking import PRODUCE, Asker, batch, produce_request
from tests.hostile.test_wrong_brokers import one_of

pytestmark = pytest.mark.slow

PATIENCE_S = 60
NOT_LEADER = 6


def readiness(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"{url}readyz", timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


async def test_it_is_unready_and_names_the_new_leaders_while_it_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-213, SV4: a request that came before is stored; one that comes after is sent on, and stored there."""
    monkeypatch.setattr(role, "LEAVING_S", 5.0)  # so that a busy machine asks in time
    async with one_of(tmp_path, 1) as first, AsyncExitStack() as stack:
        second = await stack.enter_async_context(one_of(tmp_path, 2))
        async with Asker(str(second.kafka)) as ask, Asker(str(first.kafka)) as other:
            await ask.create("orders", 4)
            assert (await asyncio.to_thread(readiness, second.http.url))[0] == 200
            assert (await ask.produce("orders", batch(b"1"))).base_offset == 0
            stopping = asyncio.create_task(stack.aclose())
            async with asyncio.timeout(PATIENCE_S):
                while [one.node_id for one in (await other.metadata()).brokers] != [1]:
                    await asyncio.sleep(0.01)
                while True:
                    answer = await ask.call(PRODUCE, 10, produce_request("orders", {0: batch(b"2")}))
                    (partition,) = answer.responses[0].partition_responses
                    if partition.error_code:
                        break
            assert (partition.error_code, partition.current_leader.leader_id) == (NOT_LEADER, 1)
            at = [(one.node_id, one.host, one.port) for one in answer.node_endpoints]
            assert at == [(1, first.kafka.host, first.kafka.port)]
            assert (await asyncio.to_thread(readiness, second.http.url)) == (
                503,
                {"ready": False, "metadata": "ok", "store": "ok", "disk": "ok", "tasks": "ok", "audit": "ok",
                 "stop": "it was told to stop"},
            )  # fmt: skip
            end = (await other.offset_at("orders", -1)).offset
            assert (await other.produce("orders", batch(b"2"))).base_offset == end
            await stopping
            assert (await asyncio.to_thread(readiness, first.http.url))[0] == 200
