"""The same records, compressed in every way that the formats allow and in some that they do not."""

from dray.records import Codec
from dray.records.codecs import compress, compress_xerial
from tests.records.lz4_frames import frames

_SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"


def bodies(body: bytes) -> dict[str, tuple[Codec, bytes]]:
    """By name: the codec, and the body in its form. The body should be longer than 64 KiB."""
    half = len(body) // 2
    found = {f"LZ4: {name}": (Codec.LZ4, packed) for name, (packed, _) in frames(body).items()}
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.ZSTD):
        packed = compress(codec, body)
        found |= {
            f"{codec.name}: ours": (codec, packed),
            f"{codec.name}: two": (codec, compress(codec, body[:half]) + compress(codec, body[half:])),
            f"{codec.name}: an empty one first": (codec, compress(codec, b"") + packed),
            f"{codec.name}: an empty one last": (codec, packed + compress(codec, b"")),
            f"{codec.name}: a skippable one first": (codec, _SKIPPED + packed),
            f"{codec.name}: a skippable one last": (codec, packed + _SKIPPED),
            f"{codec.name}: junk behind it": (codec, packed + b"junkjunk"),
            f"{codec.name}: zeros behind it": (codec, packed + bytes(8)),
            f"{codec.name}: half": (codec, packed[: len(packed) // 2]),
        }
    xerial = compress_xerial(body)
    return found | {
        "xerial: ours": (Codec.SNAPPY, xerial),
        "xerial: small blocks": (Codec.SNAPPY, compress_xerial(body, 100)),
        "xerial: two": (Codec.SNAPPY, xerial[:16] + compress_xerial(body[:half])[16:] + compress_xerial(body[half:])),
        "xerial: junk behind it": (Codec.SNAPPY, xerial + b"junkjunk"),
        "xerial: zeros behind it": (Codec.SNAPPY, xerial + bytes(8)),
    }
