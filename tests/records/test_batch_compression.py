"""Compressed records, honest and hostile."""

import contextlib
import gzip
import random
import struct
import subprocess
import sys
import zlib

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.records import Codec
from dray.records.codecs import Scratch, ScratchPool, compress, compress_xerial, decompress, expand
from dray.records.errors import BadCompression, ExpandsTooFar

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the same words again and again, " * 500


@given(content=st.binary(max_size=3_000), codec=st.sampled_from(Codec))
def test_every_codec_gives_back_what_went_in(content: bytes, codec: Codec):
    """R-088"""
    assert bytes(expand(codec, compress(codec, content), 4_096)) == content


@given(content=st.binary(max_size=3_000), block_bytes=st.integers(1, 1_000))
def test_xerial_framing_is_read_block_by_block(content: bytes, block_bytes: int):
    """R-088"""
    assert bytes(expand(Codec.SNAPPY, compress_xerial(content, block_bytes), 4_096)) == content


@pytest.mark.parametrize("codec", PACKED)
def test_another_library_reads_ours_and_we_read_its(codec: Codec):
    """R-088, K-022: the C libraries inside pyarrow, none of which is cramjam's."""
    other = pa.Codec(codec.name.lower())
    assert other.decompress(compress(codec, TEXT), len(TEXT)).to_pybytes() == TEXT
    assert bytes(expand(codec, other.compress(TEXT).to_pybytes(), len(TEXT))) == TEXT


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 16) + 1, 200_000])
@pytest.mark.parametrize("is_random", [False, True])
def test_lz4_frames_have_independent_blocks_as_java_demands(size: int, is_random: bool):
    """The flag is bit 5 of the byte after the magic; random bytes are stored, not packed."""
    content = random.Random(size).randbytes(size) if is_random else (TEXT * 13)[:size]
    packed = compress(Codec.LZ4, content)
    assert packed[4] & 0xE0 == 0x60
    assert pa.Codec("lz4").decompress(packed, size).to_pybytes() == content
    assert bytes(expand(Codec.LZ4, packed, size or 1)) == content


def zstd_in_pieces() -> bytes:
    writer = cramjam.zstd.Compressor()
    writer.compress(TEXT[:100])
    begun = bytes(writer.flush())
    writer.compress(TEXT[100:])
    return begun + bytes(writer.finish())


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, gzip.compress(TEXT[:700]) + gzip.compress(TEXT[700:])),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT[:700])) + bytes(cramjam.zstd.compress(TEXT[700:]))),
        (Codec.ZSTD, zstd_in_pieces()),
        (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT[:700])) + bytes(cramjam.lz4.compress(TEXT[700:]))),
    ],
    ids=["gzip members", "zstd frames", "zstd without a size", "lz4 frames"],
)
def test_several_members_and_unknown_sizes_are_read(codec: Codec, packed: bytes):
    """R-088: gzip members, zstd frames, zstd without a content size, lz4 frames."""
    assert bytes(expand(codec, packed, len(TEXT))) == TEXT


def test_the_zstd_in_pieces_has_no_content_size():
    """Else the case above would prove nothing: neither size flag nor single-segment flag is set."""
    assert zstd_in_pieces()[4] & 0xE0 == 0


@pytest.mark.parametrize("codec", PACKED)
def test_the_cap_is_exact(codec: Codec):
    """B4"""
    packed = compress(codec, TEXT)
    assert bytes(expand(codec, packed, len(TEXT))) == TEXT
    with pytest.raises(ExpandsTooFar):
        expand(codec, packed, len(TEXT) - 1)


def test_the_cap_holds_across_xerial_blocks():
    """B4"""
    packed = compress_xerial(TEXT, 1_000)
    assert bytes(expand(Codec.SNAPPY, packed, len(TEXT))) == TEXT
    with pytest.raises(ExpandsTooFar):
        expand(Codec.SNAPPY, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_a_cut_stream_is_corrupt_not_too_large(codec: Codec):
    packed = compress(codec, TEXT)
    for kept in (0, 1, 3, len(packed) // 2, len(packed) - 1):
        with pytest.raises(BadCompression):
            expand(codec, packed[:kept], 1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_rubbish_is_corrupt(codec: Codec):
    with pytest.raises((BadCompression, ExpandsTooFar)):
        expand(codec, b"\xff\xee\xdd" * 20, 1 << 20)


@pytest.mark.parametrize("claimed", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"])
def test_a_snappy_length_that_lies_is_refused(claimed: bytes):
    with pytest.raises(ExpandsTooFar):
        expand(Codec.SNAPPY, claimed + b"\x00a", 1 << 20)


@pytest.mark.parametrize("length", [-1, 0, 100, 2**31 - 1])
def test_a_xerial_block_length_that_does_not_fit_is_corrupt(length: int):
    head = compress_xerial(b"")
    with pytest.raises(BadCompression):
        expand(Codec.SNAPPY, head + struct.pack(">i", length) + b"abc", 1 << 20)
    with pytest.raises(BadCompression):
        expand(Codec.SNAPPY, head + b"\x00\x00", 1 << 20)
    with pytest.raises(BadCompression):
        expand(Codec.SNAPPY, head[:12], 1 << 20)


def test_scratch_is_used_again_and_a_refusal_does_not_spoil_it():
    pool = ScratchPool(len(TEXT), keep=1)
    with pool.lend() as first, pytest.raises(ExpandsTooFar):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT * 2), first)
    with pool.lend() as again:
        assert again is first
        assert bytes(decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT), again)) == TEXT
        with pool.lend() as other:
            assert other is not again
    assert isinstance(first, Scratch)


@pytest.mark.skipif(sys.platform != "linux", reason="pages that were given back read as zeros on Linux")
@pytest.mark.parametrize(
    ("expands_to", "cap", "is_kept"), [(9 << 20, 8 << 20, False), (9 << 20, 64 << 20, False), (1 << 20, 8 << 20, True)]
)
def test_an_idle_scratch_buffer_keeps_little_memory(expands_to: int, cap: int, is_kept: bool):
    """After a bomb and after a large batch the pages go back; after a small one they are warm for the next."""
    pool = ScratchPool(cap)
    with pool.lend() as scratch, contextlib.suppress(ExpandsTooFar):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, b"a" * expands_to), scratch)
        assert scratch.output[0] == ord("a")
    assert scratch.output[0] == (ord("a") if is_kept else 0)
    with pool.lend() as again:
        assert again is scratch
        assert bytes(decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT), again)) == TEXT


MEASURE = """
import os, pathlib, sys
from dray.records import Codec
from dray.records.codecs import Scratch, compress, decompress
from dray.records.errors import ExpandsTooFar

CAP = 8 << 20
for codec in Codec:  # what is loaded at the first use is no cost of a bomb
    decompress(codec, compress(codec, b"a" * 100), Scratch(1 << 16))

def peak():  # not ru_maxrss, which a child inherits from its parent
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

for path in sys.argv[1:]:
    codec, packed = Codec(int(path.rpartition(".")[2])), pathlib.Path(path).read_bytes()
    if os.fork() == 0:
        before = peak()
        try:
            decompress(codec, packed, Scratch(CAP))
        except ExpandsTooFar:
            print((peak() - before - (3 << 20)) / CAP)  # a decoder has its own tables and buffers whatever the cap
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def bombs() -> dict[str, tuple[Codec, bytes]]:
    zeros = bytes(1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zstd = cramjam.zstd.Compressor()
    lz4 = cramjam.lz4.Compressor()
    gzipped = b""
    for _ in range(48):
        gzipped += packer.compress(zeros)
        zstd.compress(zeros)
        lz4.compress(zeros)
    gzipped += packer.flush()
    # A frame that claims a window of 128 MiB and holds one long run.
    run = b"\x28\xb5\x2f\xfd\x00\x88" + b"\x02\x00\x10\x00" * 2_048 + b"\x03\x00\x10\x00"
    return {
        "gzip": (Codec.GZIP, gzipped),
        "zstd": (Codec.ZSTD, bytes(zstd.finish())),
        "zstd with a huge window": (Codec.ZSTD, run),
        "lz4": (Codec.LZ4, bytes(lz4.finish())),
        "snappy": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros * 48))),
        "xerial": (Codec.SNAPPY, compress_xerial(zeros * 48, 1 << 20)),
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_bomb_costs_at_most_twice_the_cap(tmp_path):
    """R-088, B4: each in a process of its own, so that its peak is its own."""
    paths = []
    for name, (codec, packed) in bombs().items():
        paths.append(tmp_path / f"{name}.{int(codec)}")
        paths[-1].write_bytes(packed)
    done = subprocess.run([sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True, check=True)
    costs = dict(zip(paths, map(float, done.stdout.split()), strict=True))
    print({path.stem: cost for path, cost in costs.items()})
    assert all(-0.5 <= cost <= 2 for cost in costs.values()), costs
