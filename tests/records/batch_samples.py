"""Batches for tests: drawn by hypothesis, made from a seed, and damaged on purpose."""

import random

from crc32c import crc32c
from hypothesis import strategies as st

from dray.buffers import Buffer
from dray.records import (
    MAX_TIMESTAMP,
    BatchRules,
    NewRecord,
    ScratchPool,
    Validated,
    build_batch,
    check_records,
    inspect,
)
from dray.records.layout import CRC_FROM, HEADER_SIZE, LENGTH_FROM

contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.binary(min_size=120, max_size=140))
header_keys = st.text(max_size=12)
headers = st.lists(st.tuples(header_keys, contents), max_size=4)
timestamps = st.one_of(st.just(-1), st.integers(0, MAX_TIMESTAMP))
new_records = st.builds(NewRecord, key=contents, value=contents, timestamp=timestamps, headers=headers.map(tuple))
record_lists = st.lists(new_records, min_size=1, max_size=12)


def seeded_records(dice: random.Random, most: int = 20) -> list[NewRecord]:
    """A list of records that touches nulls, empties, doubled headers and longer varints."""

    def content() -> bytes | None:
        kind = dice.randrange(5)
        return None if kind == 0 else b"" if kind == 1 else dice.randbytes(dice.choice((1, 10, 63, 64, 200)))

    return [
        NewRecord(
            content(),
            content(),
            dice.choice((-1, 0, 1_700_000_000_000 + dice.randrange(10**6), MAX_TIMESTAMP)),
            [(dice.choice(("", "a", "trace-id", "ключ", "鍵", "🔑")), content()) for _ in range(dice.randrange(4))],
        )
        for _ in range(dice.randrange(1, most))
    ]


def validate(buffer: Buffer, rules: BatchRules, pool: ScratchPool, now_ms: int | None = None) -> Validated:
    """Both steps of a check at once."""
    return check_records(inspect(buffer, rules), rules, pool, now_ms)


def records_bytes(records: list[NewRecord]) -> bytes:
    """The uncompressed records without their header."""
    return build_batch(records)[HEADER_SIZE:]


def damaged(dice: random.Random, data: bytes) -> bytes:
    """The bytes with a few edits of the kinds that parsers get wrong."""
    out = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(out)) if out else 0
        match dice.randrange(6):
            case 0 if out:
                out[at] ^= 1 << dice.randrange(8)
            case 1 if out:
                out[at] = dice.choice((0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF))
            case 2:
                del out[at:]
            case 3:
                del out[at : at + dice.randrange(1, 4)]
            case 4:
                out[at:at] = dice.choice(
                    (b"\x00", b"\x01", b"\x80", b"\xff" * 5, b"\xff" * 10, b"\xfe\xff\xff\xff\x0f")
                )
            case _:
                out += dice.randbytes(dice.randrange(1, 4))
    return bytes(out)


def resealed(batch: bytes, **patches: tuple[int, bytes]) -> bytes:
    """The batch with bytes replaced at positions, its length and CRC made right again."""
    out = bytearray(batch)
    for at, replacement in patches.values():
        out[at : at + len(replacement)] = replacement
    out[8:12] = (len(out) - LENGTH_FROM).to_bytes(4, "big")
    out[17:21] = crc32c(bytes(out[CRC_FROM:])).to_bytes(4, "big")
    return bytes(out)


def batch_of(records: bytes, count: int) -> bytes:
    """A batch with a right header around any bytes."""
    head = build_batch([NewRecord(value=b"")])[:HEADER_SIZE]
    return resealed(
        head + records, delta=(23, (count - 1).to_bytes(4, "big", signed=True)), count=(57, count.to_bytes(4, "big"))
    )
