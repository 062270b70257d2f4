"""Turns our .proto files into modules: the queue API, and what the log says to etcd and Oxia.

python -m tools.generate_api            write the modules
python -m tools.generate_api --check    fail if a module differs from what would be written
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parent.parent / "src"
PROTOS: Final = ("dray/api/v1/heaps.proto", "dray/log/etcd/etcd.proto", "dray/log/oxia/oxia.proto")
MADE: Final = tuple(proto.replace(".proto", ending) for proto in PROTOS for ending in ("_pb2.py", "_pb2.pyi"))


def generate(target: Path) -> None:
    """Write the modules below another root."""
    import grpc_tools
    from grpc_tools import protoc

    included = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(
        ["protoc", f"-I{SOURCE}", f"-I{included}", f"--python_out={target}", f"--pyi_out={target}", *PROTOS]
    )
    if code:
        raise SystemExit(code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.generate_api", description="Write our modules.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a module is not current")
    if not parser.parse_args().check:
        generate(SOURCE)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        stale = [name for name in MADE if _text(Path(directory), name) != _text(SOURCE, name)]
    for name in stale:
        print(f"not current: src/{name}; run python -m tools.generate_api", file=sys.stderr)
    return 1 if stale else 0


def _text(root: Path, name: str) -> str:
    path = root / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
