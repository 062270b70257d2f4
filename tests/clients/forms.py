"""The same records in every form of compression, offered to a broker."""

from dray.records.layout import HEADER_SIZE
from tests.golden.asking import PRODUCE, Asker, batch, produce_request
from tests.records.batch_samples import resealed
from tests.records.odd_compression import bodies

COUNT = 5
PLAIN = batch(*(b"a" * 40_000 + bytes([n]) for n in range(COUNT)))


async def offer_all(bootstrap: str, topic: str) -> dict[str, int]:
    """Produce the records in every form, each to its own partition; the ones that were taken."""
    forms = bodies(PLAIN[HEADER_SIZE:])
    taken = {}
    async with Asker(bootstrap) as ask:
        await ask.create(topic, len(forms))
        for number, (form, (codec, packed)) in enumerate(forms.items()):
            records = resealed(PLAIN[:HEADER_SIZE] + packed, attributes=(21, bytes([0, codec])))
            answer = await ask.call(PRODUCE, 9, produce_request(topic, {number: records}))
            [told] = answer.responses[0].partition_responses
            assert told.error_code in (0, 87), form
            if told.error_code == 0:
                taken[form] = number
    return taken
