"""Compares, and records on request."""

import sys

from tests.golden.comparison.comparing import differences
from tests.golden.comparison.page import PAGE, page_of
from tests.golden.comparison.recording import among, record, recorded
from tests.golden.comparison.scenes import SCENES
from tests.golden.comparison.servers import dray_plays, kafka_plays

RECORD = "--record"


def main() -> None:
    words = sys.argv[1:]
    if RECORD in words:
        words.remove(RECORD)
        record(kafka_plays(SCENES))
    scenes = [scene for scene in SCENES if not words or any(word in scene.__name__ for word in words)]
    answers = dray_plays(scenes).answers
    found = differences(among(recorded(), answers), answers)
    for one in found if words else ():
        print(f"{one.shape} | {one.field} | Kafka: {one.kafka} | Dray: {one.dray}")
    if not words:
        PAGE.write_text(page_of(found, len(answers)), encoding="utf-8")
    print(f"{len(answers)} shapes, {len({one.shape for one in found})} of them differ")


if __name__ == "__main__":
    main()
