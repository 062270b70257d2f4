"""Our generated codec against kio and kafka-python, for every message version."""

import os
import random
import subprocess
import sys

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from kafka.protocol.api_message import ApiMessage

from dray.servers.kafka.codec import decode, encode
from tests.kafka.oracle import cases, kio_decode, kio_encode, random_message

SEED = int(os.environ.get("DRAY_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
CASES = list(cases())
MODULES = sorted({case.module for case in CASES})
PER_VERSION = 8


def test_the_generated_modules_are_current() -> None:
    """R-073: the messages in the repository are what the generator makes of the schema."""
    command = [sys.executable, "-m", "tools.generate_kafka", "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_message_version_is_compared() -> None:
    assert len(CASES) == len({str(case) for case in CASES}) > 300


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_kio_and_we_agree_on_every_byte(module: str) -> None:
    """R-074: kio's bytes read and written by us are the same bytes, and kio reads ours as what it sent."""
    print("seed", SEED)
    for case in (case for case in CASES if case.module == module):
        dice = random.Random(f"{SEED}/{case}")
        for _ in range(PER_VERSION):
            theirs = random_message(case.kio_type, dice)
            raw = kio_encode(theirs)
            message, end, _ = decode(case.codec.read[case.version], memoryview(raw), 0)
            assert end == len(raw), str(case)
            ours = b"".join(encode(case.codec.write[case.version], message))
            assert ours == raw, str(case)
            assert kio_decode(case.kio_type, ours) == theirs, str(case)


def _kafka_python(name: str) -> type | None:
    packages = (kafka.protocol.producer, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.admin)
    for package in (*packages, kafka.protocol.sasl):
        if hasattr(package, name):
            return getattr(package, name)
    return None


@pytest.mark.slow
def test_kafka_python_reads_and_writes_our_bytes() -> None:
    """R-074: a second oracle, for the APIs it has."""
    print("seed", SEED)
    compared = set()
    for case in CASES:
        name = "".join(word.capitalize() for word in case.module.split("_")) + case.role.capitalize()
        other = _kafka_python(name)
        if other is None or case.version > other.max_version:
            continue
        dice = random.Random(f"{SEED}/{case}")
        for _ in range(4):
            raw = kio_encode(random_message(case.kio_type, dice))
            message, _, _ = decode(case.codec.read[case.version], memoryview(raw), 0)
            ours = b"".join(encode(case.codec.write[case.version], message))
            # ApiVersionsResponse overrides decode to read errors as version 0.
            theirs = ApiMessage.decode.__func__(other, ours, version=case.version)
            theirs._header = None  # its decode leaves the slot empty, which its encode does not expect
            assert theirs.encode(version=case.version) == raw, str(case)
        compared.add((case.module, case.role))
    assert len(compared) > 50
