"""The same requests, sent to Dray and to Apache Kafka, and what differs between the answers.

    python -m tests.golden.comparison              Dray against what is recorded; writes docs/kafka-differences.md
    python -m tests.golden.comparison --record     asks Apache Kafka first, and records what it answers
    python -m tests.golden.comparison produce      only the scenes with this in their name; shows, writes nothing

A *scene* sets something up and asks; each answer has a name, its *shape*.
Answers are rendered with everything masked that may differ between two runs
(`rendering`). Those of Kafka lie in `tests/golden/recorded`, so that
`tests/golden/test_recorded.py` needs no Java; `tests/peers/test_recorder.py`
asks Kafka again and finds no drift. What differs must have its reason in
`reasons`: the test fails if one is missing, if one is not needed any more, or
if the page is not what the run would write.
"""
