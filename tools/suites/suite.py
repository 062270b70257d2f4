"""Which suites there are, what each needs, and why some of its tests fail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Final

PRETENDED: Final = "4.0.0"
"""The version of Kafka that the suites are told they talk to; kafka-python takes Dray for it by what it advertises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why tests fail, and which do."""

    why: str
    tests: tuple[str, ...]

    def fits(self, test: str) -> bool:
        return any(fnmatchcase(test, pattern) for pattern in self.tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The tests of a client."""

    client: str
    needs: tuple[str, ...]
    """What its tests import, beside the client."""
    paths: tuple[str, ...]
    """Where the tests are that need a broker."""
    left_out: str
    """What is not run, and why."""
    environment: Callable[[str], Mapping[str, str]]
    """How it is told where the broker is."""
    partitions: int
    """How many it counts on in a topic that is made when it is first used."""
    in_archive: bool = True
    """Whether its source archive on PyPI has the tests; else a checkout of its repository must be given."""
    lacks: tuple[tuple[str, str], ...] = ()
    """Files that its tests import and its source archive does not have: ours in their place."""
    options: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()

    @property
    def version(self) -> str:
        return version(self.client)


def _kafka_python(bootstrap: str) -> dict[str, str]:
    # An external broker is used when its address is given; the directory of a download must exist all the same.
    return {"KAFKA_VERSION": PRETENDED, "KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_ROOT": "."}


def _aiokafka(bootstrap: str) -> dict[str, str]:
    return {"DRAY_SUITE_BOOTSTRAP": bootstrap}


_SERVICE: Final = '''"""A broker that runs already needs no starting."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    def __init__(self, *arguments, **options):
        raise NotImplementedError("only a broker that runs already is used")
'''
_PYTEST: Final = ("pytest<9", "pytest-mock", "pytest-timeout", "pytest-asyncio")

SUITES: Final = (
    Suite(
        client="kafka-python",
        needs=(
            *_PYTEST,
            "py",
            "lz4",
            "python-snappy",
            "zstandard",
        ),
        paths=("test/integration",),
        left_out="TLS and SASL, which Dray does not have yet",
        environment=_kafka_python,
        options=tuple(f"--ignore=test/integration/test_{name}_integration.py" for name in ("sasl", "ssl")),
        partitions=4,
        lacks=(("test/__init__.py", ""), ("test/service.py", _SERVICE)),
        reasons=(
            Reason(
                why="Transactions are refused, at once.",
                tests=("test_producer_integration::test_transactional_*",),
            ),
            Reason(
                why="There are no access rules yet.",
                tests=("test_admin_integration::test_create_describe_delete_acls",),
            ),
            Reason(
                why="Nothing is replicated by brokers: there is no leader to elect, no replica to move, no quorum.",
                tests=tuple(
                    f"test_admin_integration::test_{name}"
                    for name in (
                        "elect_leaders",
                        "alter_replica_log_dirs",
                        "describe_metadata_quorum",
                        "alter_partition_reassignments",
                        "list_partition_reassignments",
                    )
                ),
            ),
        ),
    ),
    Suite(
        client="aiokafka",
        needs=(*_PYTEST, "docker", "async-timeout", "cramjam"),
        paths=tuple(
            f"tests/test_{name}.py"
            for name in (
                "admin",
                "client",
                "conn",
                "consumer",
                "coordinator",
                "pep492",
                "producer",
                "sender",
                "transactional_consumer",
                "transactional_producer",
            )
        ),
        left_out="TLS, SASL and access rules, which Dray does not have yet; tests that need no broker",
        environment=_aiokafka,
        in_archive=False,
        options=(
            "-p",
            "broker_for_aiokafka",
            "-m",
            "not ssl",
            "--no-pull",
            f"--docker-image=dray:2.13_{PRETENDED}",
            # What a test that failed leaves behind is not held against the next one.
            "-p",
            "no:unraisableexception",
        ),
        partitions=2,
        reasons=(
            Reason(
                why="Transactions are refused, at once.",
                tests=(
                    "TestKafkaConsumerIntegration::test_consumer_*transaction*",
                    "TestKafkaConsumerIntegration::test_consumer_simple_read_only_control_record",
                    "TestKafkaProducerIntegration::test_producer_transactional_*",
                    "TestSender::test_sender_maybe_wait_for_pid_on_failure",
                ),
            ),
            Reason(
                why="Offsets are not kept in a topic, so there is no `__consumer_offsets` to be listed.",
                tests=("TestConsumerIntegration::test_exclude_internal_topics",),
            ),
        ),
    ),
)
