"""The engines of the log, side by side: entries of 50 appends, client processes that write and follow.

one writer         a process with one append in flight, followed by itself and by another process (`local`, which nobody
                   else can follow: by itself): commits/s, latency, how much later than the acknowledgement the other
                   one has it, CPU a commit of writer, follower and server
append over put    an append against a bare put of the same bytes, by one client in turns of 40

Oxia is our double of it, a process in Python: what it says is how the client compares with itself, and nothing about
the speed of a server. The bucket is versitygw behind a proxy of ours where every request takes 30 ms more; both count
as its server. Commits of the delta log are without the list of offsets, which takes a replica.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench import _engineplaces as places
from bench._engineplaces import Where, client, servers_cpu_s
from bench.harness import SHORT, Absolute, Case, Report

SECONDS: Final = 1.0 if os.environ.get(SHORT) else 4.0
PUT_INTO: Final[dict[str, Where]] = {"etcd": places.etcd, "Oxia (double)": places.oxia}
ENGINES: Final[dict[str, Where]] = {
    "local": places.local,
    "log server": places.served,
    "deltalog, directory": places.delta_directory,
    "deltalog, S3 + 30 ms": places.delta_bucket,
    "PostgreSQL": places.postgres,
    **PUT_INTO,
}


def cases() -> list[Case]:
    return [
        *(Report(f"{name}, one writer", partial(_one, where)) for name, where in ENGINES.items()),
        *(
            Absolute(
                f"{name}: p50 of an append over that of a bare put", partial(_over_put, where, 1), 2.0, "x",
                at_most=True, note="in turns, one in flight",
            )
            for name, where in PUT_INTO.items()
        ),
        *(
            Report(f"{name}, append and bare put", partial(_beside_put, where), "in turns, 16 in flight")
            for name, where in PUT_INTO.items()
        ),
    ]  # fmt: skip


def run_clients(commands: Sequence[list[str]]) -> list[dict]:
    """What these processes found, which began together."""
    with ExitStack() as stack:
        found = [stack.enter_context(started(command)) for command in commands]
        return ended(found)


def _one(where: Where) -> dict[str, float]:
    with where() as place, ExitStack() as stack:
        followers = [] if place.url.startswith("local:") else [stack.enter_context(started(client("follow", place)))]
        writer = stack.enter_context(started(client("write", place, "1", str(SECONDS))))
        clients = [writer.pid, *(one.pid for one in followers)]
        before = servers_cpu_s(clients)
        (written,) = ended([writer])
        servers = servers_cpu_s(clients) - before
        followed = ended(followers)
    took, lags = sorted(written["latencies"]), sorted(written["lags"])
    for one in followed:
        seen = one["seen"]
        lags = sorted(seen[position] - at for position, at in written["acked"].items() if position in seen)
    cpu = {"writer": written["cpu"], **({"follower": followed[0]["cpu"]} if followed else {}), "server": servers}
    return {
        "commits/s": len(took) / written["seconds"],
        "p50 ms": _part(took, 0.5) * 1e3,
        "p99 ms": _part(took, 0.99) * 1e3,
        "follower lag p50 ms": _part(lags, 0.5) * 1e3,
        "follower lag p99 ms": _part(lags, 0.99) * 1e3,
        **{f"{who} CPU us/commit": spent / len(took) * 1e6 for who, spent in cpu.items()},
    }


def _blocks(where: Where, in_flight: int) -> dict[str, float]:
    with where() as place:
        (found,) = run_clients([client("blocks", place, str(in_flight), str(SECONDS))])
    return found


def _over_put(where: Where, in_flight: int) -> float:
    found = _blocks(where, in_flight)
    return found["append"] / found["put"]


def _beside_put(where: Where) -> dict[str, float]:
    found = _blocks(where, 16)
    return {
        "append p50 ms": found["append"] * 1e3,
        "put p50 ms": found["put"] * 1e3,
        "ratio": found["append"] / found["put"],
    }


def _part(values: Sequence[float], part: float) -> float:
    return values[min(len(values) - 1, int(len(values) * part))]


def started(command: list[str]) -> "subprocess.Popen[str]":
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not process.stdout.readline():
        raise RuntimeError("a process of the load ended before it began")
    return process


def ended(processes: Sequence["subprocess.Popen[str]"]) -> list[dict]:
    """Let them begin, or end, and tell what they found."""
    for one in processes:
        assert one.stdin is not None
        one.stdin.close()
        one.stdin = None
    return [json.loads(one.communicate()[0]) for one in processes]
