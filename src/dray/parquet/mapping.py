"""The libraries of pyarrow and numpy, mapped before they are imported.

An import maps the library of a module with the interpreter's lock in hand:
for pyarrow that is 80 MB with hundreds of thousands of relocations, and not a
thread of the process runs meanwhile, the event loop neither. A foreign call
lets go of the lock. So the libraries are mapped by such calls, and the import,
which finds them there, has only its own part left.

    map_libraries()    in a thread, before the first import of pyarrow

Invariants
    PQ5  What is missing or cannot be mapped is left to the import, which tells
         what is wrong.
"""

import ctypes
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LIBRARIES: Final = {
    "numpy": ["_core/_multiarray_umath.*.so"],
    "pyarrow": [
        "libarrow.so.*",
        "libarrow_compute.so.*",
        "libparquet.so.*",
        "libarrow_python.so",
        "lib.*.so",
        "_compute.*.so",
        "_parquet.*.so",
    ],
}
"""By package, in the order in which they need each other."""


def map_libraries() -> None:
    """Map what an import of `dray.parquet.read` needs, while other threads run."""
    opening = getattr(ctypes.CDLL(None), "dlopen", None)
    if opening is None:
        return  # PQ5
    opening.restype = ctypes.c_void_p
    opening.argtypes = [ctypes.c_char_p, ctypes.c_int]
    for path in _found():
        opening(os.fsencode(path), os.RTLD_NOW)  # PQ5: whether it could be mapped shows at the import


def _found() -> Iterator[Path]:
    for package, patterns in LIBRARIES.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue  # PQ5
        for pattern in patterns:
            yield from sorted(Path(spec.origin).parent.glob(pattern))
