"""One of several processes that race for the same names. Started by tests as a program.

Reads the store's address and options as JSON from the first line of stdin, answers `ready`, and waits for the
second line. Then four tasks put their own bytes under every name; the wins are printed as JSON.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter

from dray.objects.opening import StoreOptions, open_store
from dray.objects.port import AlreadyExists
from tests.objects.servers import PATIENT, effects

TASKS = 4


async def race(address: str, options: StoreOptions, names: list[str], racer: int) -> dict[str, list[str]]:
    objects = await open_store(address, options, effects())
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    won: dict[str, list[str]] = {}

    async def put_all(task: int) -> None:
        for name in names:
            body = f"racer {racer} task {task}"
            try:
                await objects.put(name, [body.encode()])
                won.setdefault(name, []).append(body)
            except AlreadyExists:
                pass

    async with asyncio.TaskGroup() as group:
        for task in range(TASKS):
            group.create_task(put_all(task))
    await objects.close()
    return won


def race_processes(address: str, options: StoreOptions, names: list[str], processes: int = 4) -> dict[str, list[str]]:
    """Run the race; for every name, who says to have won it."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.objects.racing"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    try:
        for number, process in enumerate(running):
            _tell(process, json.dumps([address, _plain(options), names, number]))
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in running:
            _tell(process, "go")
        winners: dict[str, list[str]] = {name: [] for name in names}
        for process in running:
            answer, _ = process.communicate(timeout=120)
            for name, bodies in json.loads(answer).items():
                winners[name] += bodies
        return winners
    finally:
        for process in running:
            process.kill()
            process.wait()


def one_winner_each(winners: dict[str, list[str]]) -> bool:
    return Counter(len(bodies) for bodies in winners.values()) == {1: len(winners)}


def _plain(options: StoreOptions) -> dict[str, str | None]:
    fields = ("endpoint", "region", "access_key", "secret_key", "credentials_file")
    found = {field: getattr(options, field) for field in fields}
    return {field: None if value is None else str(value) for field, value in found.items()}


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


if __name__ == "__main__":
    place, settings, wanted, me = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(race(place, StoreOptions(**settings, retry=PATIENT), wanted, me))))
