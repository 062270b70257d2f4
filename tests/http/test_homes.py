"""Two brokers: a group is at home at one of them, and whoever asks the other is sent there."""

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.golden.asking import Asker
from tests.hostile.test_wrong_brokers import one_of

pytestmark = pytest.mark.slow

PATIENCE_S = 60


async def test_a_group_is_handed_its_records_by_one_broker_and_settles_at_any(tmp_path: Path) -> None:
    """CO4, W-23: the other one answers 307, and nothing is handed out twice."""
    async with (
        one_of(tmp_path, 1, grpc__listen="127.0.0.1:0") as first,
        one_of(tmp_path, 2, grpc__listen="127.0.0.1:0") as second,
        Asker(str(first.kafka)) as ask,
        httpx.AsyncClient(timeout=PATIENCE_S) as client,
    ):
        await ask.create("orders", 2)
        at = [f"http://{broker.http}/v1/topics/orders" for broker in (first, second)]
        for partition in range(2):
            records = {"records": [{"value_text": f"{partition}/{number}"} for number in range(10)]}
            answer = await client.post(f"{at[partition]}/partitions/{partition}/records", json=records)
            assert answer.status_code == 200, answer.text
        async with asyncio.timeout(PATIENCE_S):
            while True:  # until both know of each other
                told = [[await client.get(f"{url}/consume?group=g{n}&max=1") for url in at] for n in range(8)]
                codes = [sorted(answer.status_code for answer in answers) for answers in told]
                if all(pair == [200, 307] for pair in codes):
                    break
        sent_on = [answers.index(next(a for a in answers if a.status_code == 307)) for answers in told]
        assert set(sent_on) == {0, 1}, "groups are shared among brokers"
        found = []
        for turn in range(40):
            answer = await client.get(f"{at[turn % 2]}/consume?group=all&max=3&form=text", follow_redirects=True)
            some = answer.json()["records"]
            found += [one["value_text"] for one in some]
            for one in some:
                acks = [{"partition": one["partition"], "offsets": [one["offset"]]}]
                done = await client.post(f"{at[(turn + 1) % 2]}/ack", json={"group": "all", "acks": acks})
                assert done.status_code == 200, done.text
        assert sorted(found) == sorted(f"{partition}/{number}" for partition in range(2) for number in range(10))


async def test_what_lies_in_several_domains_is_not_written_at_once(tmp_path: Path) -> None:
    """L-01: it is refused, and nothing of it is there."""
    async with (
        one_of(tmp_path, 1, grpc__listen="127.0.0.1:0") as only,
        Asker(str(only.kafka)) as ask,
        httpx.AsyncClient(timeout=PATIENCE_S) as client,
    ):
        await ask.create("orders", 4)
        url = f"http://{only.http}/v1/topics/orders"
        records = [{"value_text": "x", "partition": number} for number in range(4)]
        answer = await client.post(f"{url}/records:batch", json={"records": records})
        assert answer.status_code == 400
        assert "domains" in answer.json()["error"]["message"]
        for number in range(4):
            assert (await client.get(f"{url}/partitions/{number}")).json()["version"] == "0"
        each = await client.post(f"{url}/records", json={"records": records})
        assert [one["offset"] for one in each.json()["results"]] == ["0"] * 4
