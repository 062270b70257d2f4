"""A zip on the path, in a process of its own: the change is made to all of Python."""

import subprocess
import sys

LOOKS = """
import importlib, os, sys, zipfile, zipimport

path = os.path.abspath("code.zip")

def write(text):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in text.items():
            file.writestr(name, content)

reads = []
original = zipimport._read_directory
zipimport._read_directory = lambda path: reads.append(path) or original(path)

write({"first.py": ""})
sys.path.insert(0, path)
import first
from dray.pipeline.zips import keep_unchanged
keep_unchanged()
keep_unchanged()
importlib.invalidate_caches()
before = len(reads)
for _ in range(5):
    importlib.invalidate_caches()
assert len(reads) == before, "an unchanged zip was read again"
write({"first.py": "", "second.py": "found = 1"})
importlib.invalidate_caches()
import second
assert second.found == 1
os.remove(path)
importlib.invalidate_caches()
try:
    import third
except ModuleNotFoundError:
    print("as it should be")
"""


def test_a_zip_is_read_again_when_it_has_changed_and_not_before(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOOKS], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "as it should be\n", done.stdout + done.stderr
