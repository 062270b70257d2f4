"""The first programs of the clients from PyPI, as docs/quickstarts.md has them, on `drayd dev`."""

from collections.abc import Iterator

import pytest

from tests.cli.daemon import Daemon, serving
from tests.docs.quickstart_page import Program, printed, programs, sections

CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python", "FastStream on confluent-kafka", "FastStream on aiokafka")
OTHERS = ("kafkajs", "kcat", "Kafka's own tools")


@pytest.fixture(scope="module")
def drayd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(
        "--data", tmp_path_factory.mktemp("quickstarts"), "--kafka", "0", "--http", "0", "--grpc", ""
    ) as running:
        yield running


def test_the_page_has_every_client() -> None:
    assert tuple(sections()) == (*CLIENTS, *OTHERS)
    assert tuple(one.client for one in programs("python")) == CLIENTS


@pytest.mark.slow
@pytest.mark.parametrize("program", programs("python"), ids=lambda program: program.client)
def test_the_first_program_prints_what_the_page_says(drayd: Daemon, program: Program) -> None:
    assert printed(program, drayd.kafka) == program.prints
