"""Errors of single partitions are counted: a request that carries them has none of its own."""

import asyncio

from dray.servers.kafka.telemetry import PARTITION_ERRORS
from dray.testing import broker
from tests.golden.asking import Asker, batch


def counted(api: str, error: int) -> float:
    return PARTITION_ERRORS.labels(api, str(error))._value.get()


def test_partitions_of_produce_and_fetch_that_get_an_error_are_counted() -> None:
    before = {key: counted(*key) for key in (("Produce", 3), ("Produce", 2), ("Fetch", 1), ("Fetch", 3))}

    async def err(bootstrap: str) -> None:
        async with Asker(bootstrap) as ask:
            await ask.create("counted")
            assert (await ask.produce("counted", batch(b"x"))).error_code == 0
            assert (await ask.produce("counted", batch(b"x"), partition=7)).error_code == 3
            damaged = bytearray(batch(b"x"))
            damaged[-1] ^= 1
            assert (await ask.produce("counted", bytes(damaged))).error_code == 2
            assert (await ask.fetch("counted", 99)).error_code == 1
            assert (await ask.fetch("counted", partition=7)).error_code == 3

    with broker() as running:
        asyncio.run(err(running.bootstrap))
    assert {key: counted(*key) - count for key, count in before.items()} == dict.fromkeys(before, 1)
