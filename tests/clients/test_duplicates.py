"""Whatever fails, no record is stored twice under one producer id, and none that was acknowledged is missing.

librdkafka runs on its defaults with idempotence on, except that it gives a message up after three seconds: then it
waits for what is under way, raises the epoch of its producer id by itself, and counts the sequences of what it still
holds from 0 again. A record that it had sent under the old epoch too, and whose answer it never saw, may then be
there twice, under two epochs; no broker can know that these are the same. That is told apart here.
"""

import asyncio
import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dray.records import batches, records_of
from dray.sim.objects import ObjectFaults
from tests.clients.failing import FailingBroker
from tests.clients.test_hardship import Deliveries
from tests.golden.asking import Asker, records_in

pytestmark = pytest.mark.slow

SEED = 20261116
PARTITIONS = 2
TOPIC = "orders"
SEQUENCES = 1 << 31
HARDSHIPS = (
    ObjectFaults(unavailable=1.0),
    ObjectFaults(unavailable=0.5),
    ObjectFaults(lost_reply=0.7),
    ObjectFaults(lost_request=0.7),
    ObjectFaults(longest_delay_seconds=0.5),
    ObjectFaults(longest_delay_seconds=8.0),
    ObjectFaults(lost_reply=0.3, lost_request=0.3, unavailable=0.3, longest_delay_seconds=0.3),
)
HANGING = (ObjectFaults(stall=0.5), ObjectFaults(stall=1.0))
"""Only for a store whose calls are given up: a local disk is waited for."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Where a stored value came from."""

    producer: int
    epoch: int
    sequence: int
    partition: int
    offset: int


class Feeder:
    """Sends unique values from a thread of its own, evenly, until told to stop."""

    def __init__(self, sender: Deliveries) -> None:
        self._sender = sender
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self.sent: dict[bytes, int] = {}

    def __enter__(self) -> "Feeder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _feed(self) -> None:
        n = 0
        while not self._done.is_set():
            value, partition = b"%d" % n, n % PARTITIONS
            self.sent[value] = partition
            self._sender.send(TOPIC, value, partition)
            self._sender.producer.poll(0)
            n += 1
            time.sleep(0.001)  # the pace of the load


async def stored(bootstrap: str) -> dict[bytes, list[Writing]]:
    """Every value in the log, and how it came there; offsets are found to be dense on the way."""
    found: dict[bytes, list[Writing]] = defaultdict(list)
    async with Asker(bootstrap) as ask:
        for partition in range(PARTITIONS):
            offset, end = 0, (await ask.offset_at(TOPIC, -1, partition=partition)).offset
            while offset < end:
                answer = await ask.fetch(TOPIC, offset, partition=partition, max_wait_ms=0)
                assert answer.error_code == 0
                for batch in batches(records_in(answer)):
                    assert batch.base_offset == offset
                    for n, record in enumerate(records_of(batch)):
                        assert record.value is not None
                        sequence = (batch.base_sequence + n) % SEQUENCES
                        found[bytes(record.value)].append(
                            Writing(batch.producer_id, batch.producer_epoch, sequence, partition, offset + n)
                        )
                    offset += batch.record_count
    return found


def check(sender: Deliveries, sent: dict[bytes, int], found: dict[bytes, list[Writing]]) -> None:
    """Raise unless the log holds what the producer was told."""
    print(f"sent {len(sent)}, acked {len(sender.offsets)}, failed {len(sender.failed)}, stored {len(found)}")
    assert not sender.fatal
    assert set(sender.offsets) | set(sender.failed) == set(sent)
    assert set(found) <= set(sent), "a value that nobody sent"
    for value, writings in found.items():
        assert {one.partition for one in writings} == {sent[value]}
        identities = [(one.producer, one.epoch) for one in writings]
        assert len(set(identities)) == len(identities), f"{value!r} twice under one id: {writings}"
    for value, offset in sender.offsets.items():
        places = [one.offset for one in found[value]]
        told = [offset] if offset is not None else places  # librdkafka knows that it is there, and not where
        assert places, f"{value!r} was acknowledged and is not there"
        assert set(told) <= set(places), f"{value!r} was acknowledged elsewhere"
    check_sequences(one for writings in found.values() for one in writings)
    twice = [value for value, writings in found.items() if len(writings) > 1]
    print(f"under two ids: {len(twice)} values, of them acknowledged {len(set(twice) & set(sender.offsets))}")


def check_sequences(writings: Iterator[Writing]) -> None:
    """Of each producer, epoch and partition: from 0 on, without a gap, and over when the next epoch begins."""
    runs: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for one in writings:
        runs[one.producer, one.epoch, one.partition].append((one.offset, one.sequence))
    for key, run in runs.items():
        sequences = [sequence for _, sequence in sorted(run)]
        assert sequences == list(range(len(sequences))), key
    for partition in range(PARTITIONS):
        written = sorted((min(run)[0], max(run)[0], key[:2]) for key, run in runs.items() if key[2] == partition)
        for (_, last, earlier), (first, _, later) in itertools.pairwise(written):
            assert earlier < later, "an epoch came after a newer one"
            assert last < first, "an epoch went on after a newer one"
    print(f"ids and epochs: {sorted({key[:2] for key in runs})}")


def live_through(
    broker: FailingBroker, seed: int, hardships: Sequence[ObjectFaults], *, longest_s: float, **config: int
) -> tuple[Deliveries, dict[bytes, int], dict[bytes, list[Writing]]]:
    """Produce while the store fails in one way after another; every second time the process is killed too.
    Connections are cut all the time.

    Returns what was delivered, sent and stored, after it was found to fit together.
    """
    dice = random.Random(seed)
    asyncio.run(make_topic(broker.bootstrap))
    given = {name.replace("_", "."): value for name, value in config.items()}
    sender = Deliveries(broker.bootstrap, **{"reconnect.backoff.max.ms": 200, "log_level": 0, **given})
    with Feeder(sender) as feeder:
        for step, faults in enumerate(hardships):
            kill = step % 2 == 1
            print(f"{step}: {faults}{', then killed' if kill else ''}")
            broker.faults(faults)
            until = time.monotonic() + dice.uniform(0.2, longest_s)  # how long the hardship lasts
            while time.monotonic() < until:
                time.sleep(dice.uniform(0.05, 0.5))  # the pace of the cuts
                broker.road.cut()  # what was stored and not yet answered is sent again
            if kill:
                broker.kill()
                broker.start()
            broker.faults(ObjectFaults())
            time.sleep(dice.uniform(0.1, 0.5))  # how long all is well
    sender.flush()
    found = asyncio.run(stored(broker.bootstrap))
    check(sender, feeder.sent, found)
    return sender, feeder.sent, found


def drawn(seed: int, count: int, kind: str) -> list[ObjectFaults]:
    print(f"seed {seed}")
    return random.Random(seed).choices(HARDSHIPS + HANGING if kind == "remote" else HARDSHIPS, k=count)


async def make_topic(bootstrap: str) -> None:
    async with Asker(bootstrap) as ask:
        await ask.create(TOPIC, PARTITIONS)


def long_form(*values: object):
    """For `make test-long` alone."""
    return pytest.param(*values, marks=pytest.mark.long)


def exactly_once(sender: Deliveries, sent: dict[bytes, int], found: dict[bytes, list[Writing]]) -> None:
    assert not sender.failed
    assert {value: [one.offset for one in writings] for value, writings in found.items()} == {
        value: [offset] for value, offset in sender.offsets.items()
    }
    assert set(found) == set(sent)


def test_a_producer_that_gives_nothing_up_stores_every_record_exactly_once(tmp_path: Path) -> None:
    """R-092, R-097, R-098, R-100: it asks again while the broker still tries, and goes on under one id and epoch."""
    hardships = (ObjectFaults(longest_delay_seconds=2.0), ObjectFaults(lost_reply=0.5, longest_delay_seconds=0.3))
    with FailingBroker(tmp_path, SEED, remote=False) as broker:
        exactly_once(*live_through(broker, SEED, hardships, longest_s=2.0))


@pytest.mark.parametrize("kind", ["local", "remote"])
@pytest.mark.parametrize(("seed", "steps"), [(SEED + 1, 4), *(long_form(SEED + n, 10) for n in (1, 2, 3))])
def test_no_record_is_stored_twice_under_one_epoch_by_a_producer_that_gives_up(
    tmp_path: Path, kind: str, seed: int, steps: int
) -> None:
    """R-092, R-097, R-098, R-100: it goes on with the next records while the broker still tries to store those."""
    with FailingBroker(tmp_path, seed, remote=kind == "remote") as broker:
        live_through(broker, seed, drawn(seed, steps, kind), longest_s=4.5, message_timeout_ms=3000)


@pytest.mark.parametrize("steps", [4, long_form(10)])
@pytest.mark.parametrize("kind", ["local", "remote"])
def test_in_a_long_hardship_every_record_is_stored_exactly_once(tmp_path: Path, kind: str, steps: int) -> None:
    """R-092, R-097, R-098, R-100: on the defaults nothing times out, so nothing may be there twice under any id."""
    with FailingBroker(tmp_path, SEED, remote=kind == "remote") as broker:
        exactly_once(*live_through(broker, SEED, drawn(SEED, steps, kind), longest_s=3.0))
