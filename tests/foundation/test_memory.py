"""Freed buffers are used again."""

import platform
import subprocess
import sys

import pytest

ROUNDS = """
import resource, sys
from dray.memory import keep_freed_buffers

def rounds(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        buffers = [bytearray(b"x") * (4 << 20) for _ in range(5)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keeps":
    assert keep_freed_buffers(64 << 20, heaps=1), "the C library refused"
rounds(3)
print(rounds(10))
"""


def faults(kind: str) -> int:
    said = subprocess.run([sys.executable, "-c", ROUNDS, kind], capture_output=True, text=True, timeout=60, check=True)
    return int(said.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the knobs")
def test_a_process_does_not_get_its_buffers_from_the_system_again_and_again():
    assert faults("keeps") * 20 < faults("stock")
