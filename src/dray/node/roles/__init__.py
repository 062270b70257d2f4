"""What a process of Dray can be: each role stands on `dray.node.plane`.

    broker  serves clients
    meta    keeps and serves the logs of a machine, and nothing else

The compactor is none of them: it needs Spark, which nothing here may load, and
follows the logs as a tool does (`dray.pipeline.compactor`, ADR-0079).
"""
