"""Fail if the C kernel is not what serves: a failed build is silent, since the extension is optional."""

import sys

from dray.records import kernel


def main() -> int:
    if kernel.EXTENSION_LOADED:
        print("extension loaded")
        return 0
    print(
        "the C extension dray.records._kernel is not loaded, the pure-Python twin serves: "
        "install a C compiler and the Python headers, then `make clean setup`",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
