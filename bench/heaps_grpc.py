"""Heaps through gRPC and the SDK, beside other durable queues: whole cycles of 1 KiB messages.

A cycle is an enqueue, a pop and an ack. On both sides 64 producers wait for
each message to be durable, 64 workers wait for each ack, all in one client
process on the cores of the server, and at most 1,000 messages wait
(`bench._heapload`). Beside a name stands what was synced.

CPU time a cycle is reported too: on a machine that is busy with other things
it says more than cycles a second.
"""

from collections.abc import Callable

from bench import _heaptargets as targets
from bench._heaptargets import QueueTarget, measure
from bench.harness import Absolute, Case, Comparison, Report, sized

RATE = 1_000.0
_FIGURES = ("cycles/s", "client CPU us/cycle", "server CPU us/cycle", "enqueue p95 ms", "pop p95 ms")
_last: dict[str, dict[str, float]] = {}


def seconds() -> float:
    return float(sized(5, 1))


def cycles(target: QueueTarget) -> Callable[[], float]:
    def run() -> float:
        figures = _last[target.name] = measure(target, seconds())
        return figures["cycles/s"]

    return run


def paced(figure: str) -> Callable[[], float]:
    return lambda: measure(targets.DRAY, seconds(), RATE)[figure]


def _latest(target: QueueTarget) -> dict[str, float]:
    """Of the last run that was compared."""
    figures = _last.get(target.name) or measure(target, seconds())
    return {name: figures[name] for name in _FIGURES}


def _against(target: QueueTarget, mark: float) -> list[Case]:
    return [
        Comparison(
            f"cycles against {target.name}", cycles(targets.DRAY), cycles(target), mark, "cycles/s",
            note=f"dray: {targets.DRAY.synced}; {target.name}: {target.synced}",
        ),
        Report(f"dray beside {target.name}, last run", lambda: _latest(targets.DRAY)),
        Report(f"{target.name}, last run", lambda: _latest(target)),
    ]  # fmt: skip


def cases() -> list[Case]:
    return [
        Absolute(
            "each of enqueue, pop and ack, the client on the same cores", cycles(targets.DRAY), 5_000, "/s",
            note=targets.DRAY.synced,
        ),
        Absolute("enqueue, p95 at 1,000/s", paced("enqueue p95 ms"), 20, "ms", at_most=True),
        Absolute("enqueue to pop, p95 at 1,000/s", paced("pop p95 ms"), 50, "ms", at_most=True),
        *_against(targets.PROCRASTINATE, 10),
        *_against(targets.PGQUEUER, 2),
        *_against(targets.BULLMQ_TARGET, 1),
        *_against(targets.BEANSTALKD, 1),
        *_against(targets.RABBITMQ, 1),
        *_against(targets.NATS, 0.7),
    ]  # fmt: skip
