"""One cycle of a compactor on a cluster: `python -m tests.pipeline.cluster_cycle MASTER DIRECTORY TOPIC ADDRESS`.

Each file is a task of its own. Workers find the objects at ADDRESS. It prints, as JSON, what became of the topic and
which attempts succeeded.
"""

import asyncio
import json
import sys
from pathlib import Path

from dray.clock import SystemClock
from dray.pipeline.compactor.job import run_job
from dray.pipeline.compactor.spark import SparkJobs
from tests.pipeline.compacting import compactor


async def main(master: str, directory: str, topic: str, address: str) -> None:
    spark, attempts = SparkJobs(address, master, SystemClock()), []

    def jobs(given):
        outcomes = spark.use(lambda session: run_job(session, address, [[job] for job in given]))
        attempts.extend(one.attempt for one in outcomes)
        return outcomes

    async with compactor(Path(directory), run_jobs=jobs) as running:
        tally = (await running.cycle(topic))[topic]
    spark.stop()
    print(json.dumps({"records": tally.records, "failures": tally.failures, "attempts": attempts}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
