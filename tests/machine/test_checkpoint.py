"""A machine as bytes, and back."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dray.errors import Corrupt
from dray.machine import checkpoint
from dray.machine.checkpoint import CheckpointTooNew
from dray.machine.machine import Machine

from .shop import Shop
from .world import World


def fold(entries, machine=None) -> Machine:
    machine = machine if machine is not None else Machine()
    for position, raw in entries:
        machine.apply(position, raw)
    return machine


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_loaded_machine_goes_on_exactly_like_the_one_that_was_dumped(seed, version):
    """K2, R-021: fold = load + fold, cut anywhere."""
    print(f"seed={seed}")
    world = World(seed, version=version).run(500)
    entries = world.tape.entries
    whole = checkpoint.dump(world.machine)
    assert checkpoint.dump(fold(entries)) == whole
    dice = random.Random(seed)
    for _ in range(4):
        cut = dice.randrange(len(entries))
        first = fold(entries[:cut])
        loaded = checkpoint.load(checkpoint.dump(first))
        assert checkpoint.fingerprint(loaded) == checkpoint.fingerprint(first)
        assert checkpoint.dump(fold(entries[cut:], loaded)) == whole


@pytest.mark.slow
def test_a_checkpoint_does_not_depend_on_hash_seeds():
    """K2, M4: three processes with three hash seeds fold one log into the same bytes."""
    here = Path(__file__).parent.parent
    program = (
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        "from machine.world import World\n"
        "from dray.machine import checkpoint\n"
        "w = World(11).run(400)\n"
        "print(w.machine.position, w.machine.digest, checkpoint.fingerprint(w.machine))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }  # fmt: skip
    assert len(found) == 1, found


@pytest.mark.parametrize("version", [1, 2])
def test_damage_anywhere_is_found(version):
    """K3, R-064"""
    good = checkpoint.dump(World(3, version=version).run(120).machine)
    dice = random.Random(1)
    for at in {*range(24), *(dice.randrange(len(good)) for _ in range(300)), len(good) - 1}:
        bad = bytearray(good)
        bad[at] ^= 1 << dice.randrange(8)
        with pytest.raises(Corrupt):  # a flipped bit is damage wherever it is, and never newer software
            checkpoint.load(bytes(bad))
    for size in (0, 5, 20, 52, len(good) // 2, len(good) - 1):
        with pytest.raises(Corrupt):
            checkpoint.load(good[:size])
    with pytest.raises(Corrupt):
        checkpoint.load(good + b"x")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("length", [1, 7, 31, 32, 33, 1_000, 1 << 20])
def test_in_parts_it_says_the_same_of_itself_and_damage_is_found(version, length):
    """K3: however it is cut."""
    good = checkpoint.dump(World(3, version=version).run(60).machine)

    def parts(whole: bytes) -> list[bytes]:
        return [whole[at : at + length] for at in range(0, len(whole), length)]

    told = checkpoint.summary_of(parts(good))
    machine = checkpoint.load(good)
    assert (told.position, told.digest, told.size, told.hash) == (
        machine.position, machine.digest, len(good), good[-32:],
    )  # fmt: skip
    assert told == checkpoint.summary(good)
    for at in (0, 9, 30, len(good) // 2, len(good) - 33, len(good) - 32, len(good) - 1):
        with pytest.raises(Corrupt):
            checkpoint.summary_of(parts(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]))
    for whole in (b"", good[:20], good[:-1], good + b"x"):
        with pytest.raises(Corrupt):
            checkpoint.summary_of(parts(whole))


@pytest.mark.parametrize("version", [1, 2])
def test_a_body_that_makes_no_sense_is_corrupt_even_with_a_good_hash(version):
    """K3"""
    good = checkpoint.dump(World(3, version=version).run(120).machine)
    dice = random.Random(2)
    loaded = 0
    for _ in range(400):
        bad = bytearray(good)
        for _ in range(dice.randrange(1, 4)):
            bad[dice.randrange(20, len(good) - 32)] = dice.randrange(256)
        bad[-32:] = checkpoint._hash(bytes(bad[:-32]))
        try:
            checkpoint.load(bytes(bad))
            loaded += 1
        except (Corrupt, CheckpointTooNew):
            pass
    print(f"loaded={loaded}")


def test_newer_bytes_say_so():
    """K3"""
    good = bytearray(checkpoint.dump(Shop().machine))
    good[8] = 3
    good[-32:] = checkpoint._hash(bytes(good[:-32]))
    with pytest.raises(CheckpointTooNew, match="newer"):
        checkpoint.load(bytes(good))


def test_a_checkpoint_carries_the_digest():
    """M4, Q6"""
    shop = Shop()
    loaded = checkpoint.load(checkpoint.dump(shop.machine))
    assert (loaded.position, loaded.digest) == (shop.machine.position, shop.machine.digest)
    said = checkpoint.summary(checkpoint.dump(loaded))
    assert (said.position, said.digest, len(said.hash)) == (loaded.position, loaded.digest, 32)
    assert said.time_ms == shop.machine.time_ms


def test_an_empty_machine_survives():
    assert checkpoint.fingerprint(checkpoint.load(checkpoint.dump(Machine()))) == checkpoint.fingerprint(Machine())
