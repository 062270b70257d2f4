"""Runs the comparison. With words: only scenes with one of them in their names, shown and not written."""

import sys

from tests.peers.comparison.page import PAGE, page_of
from tests.peers.comparison.scenes import SCENES
from tests.peers.comparison.servers import run


def main() -> None:
    words = sys.argv[1:]
    scenes = [scene for scene in SCENES if not words or any(word in scene.__name__ for word in words)]
    comparison = run(scenes)
    for one in comparison.differences if words else ():
        print(f"{one.shape} | {one.field} | Kafka: {one.kafka} | Dray: {one.dray}")
    if not words:
        PAGE.write_text(page_of(comparison), encoding="utf-8")
    print(f"{len(comparison.dray)} shapes, {len({one.shape for one in comparison.differences})} of them differ")


if __name__ == "__main__":
    main()
