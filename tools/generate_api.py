"""Turns `heaps.proto` into the modules of `dray.api.v1`.

python -m tools.generate_api            write the modules
python -m tools.generate_api --check    fail if a module differs from what would be written
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parent.parent / "src"
PACKAGE: Final = "dray/api/v1"
PROTO: Final = f"{PACKAGE}/heaps.proto"
MADE: Final = ("heaps_pb2.py", "heaps_pb2.pyi")


def generate(target: Path) -> None:
    """Write the modules below another root."""
    import grpc_tools
    from grpc_tools import protoc

    included = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(
        ["protoc", f"-I{SOURCE}", f"-I{included}", f"--python_out={target}", f"--pyi_out={target}", PROTO]
    )
    if code:
        raise SystemExit(code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.generate_api", description=f"Write {PACKAGE} from {PROTO}.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a module is not current")
    if not parser.parse_args().check:
        generate(SOURCE)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        stale = [name for name in MADE if _text(Path(directory), name) != _text(SOURCE, name)]
    for name in stale:
        print(f"not current: src/{PACKAGE}/{name}; run python -m tools.generate_api", file=sys.stderr)
    return 1 if stale else 0


def _text(root: Path, name: str) -> str:
    path = root / PACKAGE / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
