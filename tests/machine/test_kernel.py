"""The kernel of streams against the rules: the same state, whoever takes a batch."""

import importlib
import importlib.util
import struct
import subprocess
import sysconfig
from pathlib import Path

import pytest

from dray.errors import Corrupt
from dray.machine import kernel, streams
from dray.machine.append import ROW, pack_rows
from dray.machine.index import Index
from dray.machine.stream import Stream

from .histories import Appends
from .shop import row

_kernel = importlib.import_module("dray.machine._kernel")
SOURCE = Path(kernel.__file__).parent / "_kernelmodule.c"
STEPS = 160


def test_this_installation_has_the_kernel():
    assert kernel.EXTENSION_LOADED
    assert kernel.take_plain is _kernel.take_plain


def after(take_plain, seed: int, monkeypatch):
    monkeypatch.setattr(streams, "take_plain", take_plain)
    appends = Appends(seed)
    appends.run(STEPS)
    return appends.state()


class Counting:
    """How many rows the kernel took, and how many it left."""

    def __init__(self) -> None:
        self.taken = self.left = 0

    def __call__(self, packed, at, *rest):
        upto = _kernel.take_plain(packed, at, *rest)
        self.taken += upto - at
        self.left += upto < len(packed) // ROW.size
        return upto


@pytest.mark.parametrize("seed", range(10))
def test_the_kernel_and_the_rules_come_to_the_same_state(seed, monkeypatch):
    """H8, P1, P2, P3, H4: every verdict, the digest and the bytes of the checkpoint."""
    print(f"seed={seed}")
    counting = Counting()
    assert after(counting, seed, monkeypatch) == after(kernel.none_is_plain, seed, monkeypatch)
    assert counting.taken > 200, "it takes most of what is plain"
    assert counting.left > 50, "and leaves what is not"


PLANTED = {
    "no batch fills a block": ("#define BLOCK 512", "#define BLOCK 511"),
    "an empty batch": ("batch->records > 0 &&", ""),
    "more records than a batch can have": ("batch->records <= MOST_RECORDS &&", ""),
    "a batch that is its header": ("batch->size > BATCH_HEADER_BYTES", "batch->size >= BATCH_HEADER_BYTES"),
    "a batch over its length": ("batch->position >= LENGTH_BYTES", "batch->position >= LENGTH_BYTES - 1"),
    "a batch behind its object's end": ("<= object_size - (int64_t)batch->size", "<= object_size - batch->size + 1"),
    "a time before all time": ("batch->stamp >= -1", "batch->stamp >= -2"),
    "a time after all time": ("batch->stamp <= MOST_TIME_MS", "batch->stamp <= MOST_TIME_MS + 1"),
    "a producer below none": ("batch->producer == -1", "batch->producer <= -1"),
    "an epoch below 0": ("&& batch->epoch >= 0", ""),
    "an offset that overflows": ("base > INT64_MAX - (int64_t)batch->records ||", ""),
    "a size that overflows": ("|| size > INT64_MAX - longer", ""),
    "a closed stream": ("slot(stream, closed_at) == Py_False", "slot(stream, closed_at) != NULL"),
    "any epoch": ("&& (int16_t)little(state + AT_KNOWN_EPOCH, 2) == batch->epoch", ""),
    "the next producer": ("(int64_t)little(state, 8) == batch->producer &&", ""),
    "any sequence": ("known && (((uint32_t)little(state + AT_LAST, 4) + 1) & WRAP) == batch->sequence", "known"),
    "sequences without an end": ("+ batch->records) & WRAP", "+ batch->records)"),
    "four batches are remembered": ("#define REMEMBERED 5", "#define REMEMBERED 4"),
    "the last use stands still": ("write_little(state + AT_USED, now_min, 4);", ""),
    "a size without the length": ("(int64_t)batch->size + LENGTH_BYTES", "(int64_t)batch->size"),
}  # fmt: skip


@pytest.mark.slow  # each compiles the kernel
@pytest.mark.parametrize("planted", PLANTED)
def test_a_mistake_in_the_kernel_is_found(planted, tmp_path, monkeypatch):
    """H8: what finds nothing proves something only if it finds what was planted."""
    right, wrong = PLANTED[planted]
    source = SOURCE.read_text()
    assert source.count(right) == 1
    broken = built(source.replace(right, wrong), tmp_path)
    broken.learn(Stream, Index)
    assert any(differs(broken.take_plain, seed, monkeypatch) for seed in range(10))


def differs(take_plain, seed: int, monkeypatch) -> bool:
    right = after(kernel.none_is_plain, seed, monkeypatch)
    try:
        return after(take_plain, seed, monkeypatch) != right
    except (Corrupt, struct.error):
        return True  # its checkpoint cannot be read, or its rows not be written


def built(source: str, directory: Path):
    """A module of these sources."""
    file, library = directory / "planted.c", directory / "planted.so"
    file.write_text(source)
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", "-O1", "-fPIC", "-fwrapv", "-shared", include, str(file), "-o", str(library)], check=True)
    spec = importlib.util.spec_from_file_location("_kernel", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def take(packed: bytes, at: int, known: dict):
    given, touched = [], []
    return _kernel.take_plain(packed, at, known, 0, 1_000, 0, given, touched), given, touched


def test_what_was_learned_holds_when_another_class_cannot_be_learned():
    """H8: places of slots are taken all together."""

    class Broken(Stream):
        producers = property()

    with pytest.raises(TypeError, match="producers is not a slot"):
        _kernel.learn(Broken, Index)
    assert take(pack_rows([row(5, 2)]), 0, {5: Stream(5, b"t" * 16, 0, 0)})[1:] == ([0], [5])


@pytest.mark.parametrize("name", ["end", "size"])
def test_a_stream_that_is_longer_than_any_is_left_to_the_rules(name):
    """H8: whatever a number is, it is judged where it is judged without the kernel."""
    stream = Stream(5, b"t" * 16, 0, 0)
    setattr(stream.index, name, 1 << 63)
    assert take(pack_rows([row(5, 2)]), 0, {5: stream}) == (0, [], [])


def test_nothing_outside_the_rows_is_read():
    """H8: rows that are cut short, and rows that are not there."""
    stream = Stream(5, b"t" * 16, 0, 0)
    packed = pack_rows([row(5, 2)])
    for size in range(len(packed)):
        assert take(packed[:size], 0, {5: stream}) == (0, [], [])
    for at in (-1, -(1 << 60), 1, 1 << 60):
        assert take(packed, at, {5: stream}) == (at, [], [])
    assert stream.end == 0
    assert take(packed, 0, {5: stream}) == (1, [0], [5])
    assert stream.end == 2


@pytest.mark.parametrize("cut", range(1, 78, 11))
def test_nothing_outside_the_states_is_read(cut):
    """H8: a state that is cut short is nobody's."""
    stream = Stream(5, b"t" * 16, 0, 0)
    stream.producers = bytearray(78 - cut)
    packed = pack_rows([row(5, 2, producer=0, epoch=0, sequence=1)])
    assert take(packed, 0, {5: stream}) == (0, [], [])


def test_what_is_no_stream_is_refused_and_nothing_crashes():
    packed = pack_rows([row(5, 2)])

    class Like(Stream):
        __slots__ = ()

    for wrong in (object(), Like(5, b"t" * 16, 0, 0), Stream.__new__(Stream)):
        with pytest.raises((TypeError, AttributeError), match=r"not a stream|not made whole"):
            take(packed, 0, {5: wrong})
    for name, value in (("producers", b"bytes"), ("index", object())):
        stream = Stream(5, b"t" * 16, 0, 0)
        setattr(stream, name, value)
        with pytest.raises(TypeError, match="bytearrays"):
            take(packed, 0, {5: stream})
    stream = Stream(5, b"t" * 16, 0, 0)
    stream.index.end = -1
    with pytest.raises(ValueError, match="below 0"):
        take(packed, 0, {5: stream})
    for wrong in ((5, []), ({}, 5)):
        with pytest.raises(TypeError):
            _kernel.take_plain(packed, 0, wrong[0], 0, 1_000, 0, wrong[1], [])


def test_classes_without_the_slots_are_refused(tmp_path):
    """H8: where their slots lie is asked of the classes themselves."""
    fresh = built(SOURCE.read_text(), tmp_path)
    with pytest.raises(TypeError, match="not a stream"):
        fresh.take_plain(pack_rows([row(5, 2)]), 0, {5: Stream(5, b"t" * 16, 0, 0)}, 0, 1_000, 0, [], [])
    with pytest.raises(AttributeError):
        fresh.learn(object, Index)
    with pytest.raises(TypeError, match="producers is not a slot"):
        fresh.learn(type("Other", (Stream,), {"producers": property()}), Index)
