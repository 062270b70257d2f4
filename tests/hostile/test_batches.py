"""Batches whose checksum is right and whose content lies, in every codec."""

import asyncio
import random

import pytest

from dray.records import Codec, batches, records_of
from dray.records.codecs import compress, expand
from tests.durability.daemon import Drayd
from tests.golden.asking import Asker, batch, records_in
from tests.hostile.frames import spoiled
from tests.hostile.watching import unharmed
from tests.records.batch_samples import resealed

SEED = 20261116
COUNT = 1_500
WORKERS = 4
HEADER = 61
REFUSALS = {10, 32, 45, 47, 48, 76, 87}
"""What a client is told about a batch; a code that it would try again with is none of them."""


def lying(dice: random.Random) -> bytes:
    """A good batch with wrong header fields, wrong records, or both; its length and CRC are right."""
    codec = dice.choice(list(Codec))
    good = batch(*(dice.randbytes(dice.randrange(100)) for _ in range(dice.randrange(1, 8))), codec=codec)
    head, records = good[:HEADER], good[HEADER:]
    if dice.random() < 0.7:
        plain = bytes(expand(codec, records))
        wrong = spoiled(dice, b"\0\0\0\0" + plain)[4:]
        records = compress(codec, wrong) if dice.random() < 0.8 else wrong
    if dice.random() < 0.5:
        at = dice.randrange(21, HEADER)
        head = head[:at] + dice.randbytes(min(4, HEADER - at)) + head[at + 4 :]
    return resealed(head[:HEADER] + records)


@pytest.mark.slow
async def test_batches_that_lie_behind_a_right_checksum_do_no_harm(drayd: Drayd) -> None:
    """R-075, R-087, R-088: refused for good or stored whole; what is stored can be read."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    lies = [lying(dice) for _ in range(COUNT)]
    async with Asker(drayd.bootstrap) as ask:
        await ask.create("lied-to")
    codes: set[int] = set()

    async def tell(own: list[bytes]) -> None:
        async with Asker(drayd.bootstrap) as liar:
            for records in own:
                codes.add((await liar.produce("lied-to", records)).error_code)

    async with unharmed(drayd, "beside-lies"):
        await asyncio.gather(*(tell(lies[n::WORKERS]) for n in range(WORKERS)))
    assert codes <= REFUSALS | {0}, codes
    assert {0, 32, 87} <= codes
    async with Asker(drayd.bootstrap) as ask:
        offset, end = 0, (await ask.offset_at("lied-to", -1)).offset
        while offset < end:
            for one in batches(records_in(await ask.fetch("lied-to", offset))):
                assert one.base_offset == offset
                assert len(list(records_of(one))) == one.record_count
                offset += one.record_count
    assert "Traceback" not in "".join(drayd.log)
