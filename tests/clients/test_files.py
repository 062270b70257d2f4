"""Clients that nobody here wrote read a topic the same before and after it became table files."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dray.testing import broker
from tests.clients.kinds import AIOKAFKA, AT_MS, CODECS, CONFLUENT, KINDS, Kind, confluent_read
from tests.clients.test_matrix import RECORDS, Written, ids
from tests.fetch.compacting import turn_into_files


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "data"


@pytest.fixture(scope="module")
def bootstrap(directory: Path) -> Iterator[str]:
    with broker(directory, topics__partitions=1) as running:
        yield running.bootstrap


@pytest.mark.slow
@pytest.mark.parametrize("writer", [CONFLUENT, AIOKAFKA], ids=ids)
def test_everyone_reads_from_files_what_one_client_wrote(directory: Path, bootstrap: str, writer: Kind) -> None:
    """R-123, R-124, R-133, R-150: nulls, empties, doubled headers, times that run back; from any offset."""
    name, sent = f"files-{writer.name}", []
    for codec in CODECS:
        sent += RECORDS
        writer.write(bootstrap, name, RECORDS, codec)
    times = [AT_MS - 2_000, AT_MS - 1_000, AT_MS, AT_MS + 5, AT_MS + 200, AT_MS + 309, AT_MS + 310]
    before = [writer.at(bootstrap, name, time) for time in times]
    whole = len(sent)
    turn_into_files(directory, name, whole // 3, whole // 2)
    for reader in KINDS:
        found = reader.read(bootstrap, name, 0, whole)
        assert [one.offset for one in found] == list(range(whole)), reader.name
        assert [one.record for one in found] == sent, reader.name
    for reader in KINDS:
        assert [reader.at(bootstrap, name, time) for time in times] == before, reader.name
    for start in (1, 7, whole // 3 - 1, whole // 3, whole // 2, whole - 1):
        assert writer.read(bootstrap, name, start, 1)[0].record == sent[start]


def test_a_topic_with_the_times_of_the_log_keeps_them(directory: Path, bootstrap: str) -> None:
    """R-124: the type of time is the batch's, and so are its times."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    given = NewTopic("appended", 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([given])["appended"].result(30)
    for _ in range(3):
        CONFLUENT.write(bootstrap, "appended", [Written(b"k", b"v%d" % n, AT_MS) for n in range(20)])
    before = confluent_read(bootstrap, "appended", 0, 60)
    assert before[0].record.timestamp > AT_MS
    turn_into_files(directory, "appended", 60)
    for reader in KINDS:
        assert reader.read(bootstrap, "appended", 0, 60) == before, reader.name
