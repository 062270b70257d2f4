"""LZ4 frames of every kind the format allows, and a few it does not."""

import struct

import cramjam

from dray.records.codecs import compress
from dray.records.layout import Codec

HEADER_END = 7
_FULL = 0xFFFF_FFFF


def frames(body: bytes) -> dict[str, tuple[bytes, bool]]:
    """By name: a frame of the body, and whether it may be stored. The body needs several blocks."""
    good = compress(Codec.LZ4, body)
    blocks = good[HEADER_END:]
    linked = bytes(cramjam.lz4.compress(body))
    assert not linked[4] & 0x20, "cramjam links blocks"
    half = len(body) // 2
    two = compress(Codec.LZ4, body[:half]) + compress(Codec.LZ4, body[half:])
    skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    return {
        "ours": (good, True),
        "its size in the header": (framed(b"\x68\x40" + struct.pack("<Q", len(body)), blocks), True),
        "a checksum behind it": (framed(b"\x64\x40", blocks + struct.pack("<I", xxh32(body))), True),
        "checksums of blocks": (framed(b"\x70\x40", with_block_sums(blocks)), True),
        "larger blocks allowed": (framed(b"\x60\x70", blocks), True),
        "linked blocks": (linked, False),
        "two frames": (two, False),
        "a skippable frame first": (skipped + good, False),
        "a skippable frame last": (good + skipped, False),
        "junk behind it": (good + b"junk", False),
        "zeros behind it": (good + bytes(8), False),
        "a dictionary": (framed(b"\x61\x40" + bytes(4), blocks), False),
        "a reserved flag": (framed(b"\x62\x40", blocks), False),
        "a reserved bit of the block size": (framed(b"\x60\xc0", blocks), False),
        "version 0": (framed(b"\x20\x40", blocks), False),
        "a block size of 3": (framed(b"\x60\x30", blocks), False),
        "a wrong header checksum": (good[:6] + bytes([good[6] ^ 1]) + blocks, False),
        "a wrong size in the header": (framed(b"\x68\x40" + struct.pack("<Q", 5), blocks), False),
        "a wrong checksum behind it": (framed(b"\x64\x40", blocks + b"\1\2\3\4"), False),
        "no checksum behind it": (framed(b"\x64\x40", blocks), False),
        "wrong checksums of blocks": (framed(b"\x70\x40", with_block_sums(blocks, spoiled=1)), False),
        "a stored block of no bytes": (good[:HEADER_END] + struct.pack("<I", 1 << 31) + blocks, False),
        "no end mark": (good[:-4], False),
        "half": (good[: len(good) // 2], False),
        "a header": (good[:HEADER_END], False),
        "nothing": (b"", False),
    }


def framed(descriptor: bytes, rest: bytes) -> bytes:
    """A frame with any descriptor and its right checksum."""
    return b"\x04\x22\x4d\x18" + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF]) + rest


def with_block_sums(blocks: bytes, spoiled: int = 0) -> bytes:
    out, at = b"", 0
    while at < len(blocks):
        (length,) = struct.unpack_from("<I", blocks, at)
        size = length & 0x7FFF_FFFF
        out += blocks[at : at + 4 + size]
        if size:
            out += struct.pack("<I", xxh32(blocks[at + 4 : at + 4 + size]) ^ spoiled)
        at += 4 + size
    return out


def xxh32(content: bytes) -> int:
    """XXH32 with seed 0, by its public description."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    at, total = 0, p5
    if len(content) >= 16:
        lanes = [(p1 + p2) & _FULL, p2, 0, -p1 & _FULL]
        while at + 16 <= len(content):
            words = struct.unpack_from("<4I", content, at)
            lanes = [
                _rolled((lane + word * p2) & _FULL, 13) * p1 & _FULL for lane, word in zip(lanes, words, strict=True)
            ]
            at += 16
        total = sum(_rolled(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _FULL
    total = (total + len(content)) & _FULL
    while at + 4 <= len(content):
        total = _rolled((total + struct.unpack_from("<I", content, at)[0] * p3) & _FULL, 17) * p4 & _FULL
        at += 4
    for byte in content[at:]:
        total = _rolled((total + byte * p5) & _FULL, 11) * p1 & _FULL
    total = (total ^ total >> 15) * p2 & _FULL
    total = (total ^ total >> 13) * p3 & _FULL
    return total ^ total >> 16


def _rolled(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _FULL
