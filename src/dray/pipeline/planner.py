"""The process in which a broker plans for others: `python -m dray.pipeline.planner`.

It is told what to do by one JSON object on its standard input, credentials of
the store too, and answers on its standard output: a line of JSON, then the plan.
"""

import asyncio
import os
import sys
from typing import BinaryIO

import msgspec

from dray.errors import DrayError
from dray.pipeline.errors import BadOption
from dray.pipeline.options import WHERE, ReadOptions, parse_options
from dray.pipeline.packed import pack_plan
from dray.pipeline.planning import plan_read
from dray.tables.plans import PlanMade, PlanNotMade, PlanOrder
from dray.telemetry import configure_logging


def main(asked: BinaryIO, told: BinaryIO) -> None:
    configure_logging("error")
    try:
        order = msgspec.json.decode(asked.read(), type=PlanOrder)
        os.environ.update(order.store.environment())  # noqa: TID251 - where the store's adapter looks
        plan = asyncio.run(plan_read(_options(order), shared=order.shared, parallel=order.parallel))
        content = pack_plan(plan)
    except DrayError as error:
        refusal = PlanNotMade(error=type(error).__name__, kind=error.kind.name, message=str(error)[:2_000])
        told.write(msgspec.json.encode(refusal) + b"\n")
        return
    told.write(msgspec.json.encode(PlanMade(size=len(content), pin=plan.pin)) + b"\n")
    told.write(content)


def _options(order: PlanOrder) -> ReadOptions:
    given = {name.lower(): value for name, value in order.options.items()}
    wrong = WHERE & given.keys()
    if wrong:
        raise BadOption("the broker that plans knows where its records are", option=min(wrong))
    where = {"path": order.data} if order.log is None else {"log": order.log}
    where |= {} if order.store.url is None else {"objects": order.store.url}
    return parse_options(given | where)


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
