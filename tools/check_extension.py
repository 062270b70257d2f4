"""Fail if a C kernel is not what serves: a failed build is silent, since the extensions are optional."""

import sys

from dray.machine import kernel as streams
from dray.machine.heaps import kernel as heaps
from dray.records import kernel as records


def main() -> int:
    missing = [kernel.__name__ for kernel in (records, streams, heaps) if not kernel.EXTENSION_LOADED]
    if not missing:
        print("extensions loaded")
        return 0
    print(
        f"the C extension of {' and '.join(missing)} is not loaded, the pure-Python twin serves: "
        "install a C compiler and the Python headers, then `make clean setup`",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
