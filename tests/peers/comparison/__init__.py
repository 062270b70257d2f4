"""The same requests, sent to Dray and to Apache Kafka, and what differs between the answers.

    python -m tests.peers.comparison            run it and write docs/kafka-differences.md
    python -m tests.peers.comparison produce    only the scenes with this in their name; shows, writes nothing

A *scene* sets something up and asks; each answer has a name, its *shape*.
Answers are rendered with everything masked that may differ between two runs
(`rendering`). What is left and differs must have its reason in `reasons`;
`tests/peers/test_comparison.py` fails if one is missing, if one is not needed
any more, or if the page is not what the run would write.
"""
