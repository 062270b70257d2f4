"""What goes wrong first: a taken port, a wrong address, a wrong directory. Told in words, before anything is made."""

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.daemon import Ended, ended, serving
from tests.disk.mounts import small_filesystem

ANY = ("--kafka", "0", "--http", "0", "--grpc", "")


pytestmark = pytest.mark.slow  # nearly every test starts a process or two


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def lines(refused: Ended) -> tuple[str, str]:
    """The error and the advice: two lines, and no traceback."""
    assert refused.stdout == ""
    told, advice = refused.stderr.splitlines()
    assert told.startswith("drayd: ")
    assert advice.startswith("  next: ")
    return told, advice


@pytest.mark.parametrize(
    ("flag", "key"), [("--kafka", "kafka.listen"), ("--http", "http.listen"), ("--grpc", "grpc.listen")]
)
def test_a_taken_port_is_told_with_its_number_before_the_directory_is_made(data, taken, flag, key):
    refused = ended("dev", "--data", data, *ANY, flag, f"127.0.0.1:{taken}")
    told, advice = lines(refused)
    assert refused.code == 1
    assert f"port {taken} is taken" in told
    assert f"key={key}" in told
    assert f"{flag} HOST:PORT" in advice
    assert not data.exists()


def test_a_port_that_a_broker_has_is_told_and_the_broker_goes_on(data, tmp_path):
    with serving("--data", data, *ANY) as first:
        refused = ended("dev", "--data", tmp_path / "other", "--kafka", first.kafka, "--http", "0", "--grpc", "")
        assert refused.code == 1
        assert "is taken" in lines(refused)[0]
        assert first.stop() == 0
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--http", "203.0.113.7:7433"), "203.0.113.7 is no address of this machine"),
        (("--kafka", "no-such-host.invalid:9092"), "no address is known for the host 'no-such-host.invalid'"),
        (("--http", "everywhere"), "expected HOST:PORT such as 127.0.0.1:9092 or [::1]:9092, or a port alone"),
        (("--advertise", "0.0.0.0:9092"), "clients cannot connect to this"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_address_that_cannot_be_is_wrong_usage(data, flags, says):
    refused = ended("dev", "--data", data, *ANY, *flags)
    assert refused.code == 2
    assert says in lines(refused)[0]
    assert not data.exists()


def test_a_port_alone_is_one_of_this_machine(data):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving("--data", data, "--kafka", port, "--http", "0", "--grpc", "") as drayd:
        assert drayd.kafka == f"127.0.0.1:{port}"


def test_who_listens_everywhere_advertises_an_address_and_says_so(data):
    with serving("--data", data, "--kafka", "0.0.0.0:0", "--http", "0", "--grpc", "") as drayd:
        host, _, port = drayd.kafka.rpartition(":")
        assert host not in ("0.0.0.0", "")
        with socket.create_connection((host, int(port)), timeout=30):
            pass
        assert drayd.stop() == 0
    [line] = [json.loads(line) for line in drayd.log if "node.advertised" in line]
    assert (line["level"], line["host"]) == ("warning", host)


def test_what_is_advertised_is_what_clients_are_told(data):
    from confluent_kafka.admin import AdminClient

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving("--data", data, "--kafka", port, "--http", "0", "--grpc", "", "--advertise", "localhost:0") as drayd:
        assert drayd.kafka == f"localhost:{port}"
        [broker] = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=30).brokers.values()
        assert (broker.host, broker.port) == ("localhost", port)


def test_a_directory_in_use_names_the_process_that_has_it(data):
    with serving("--data", data, *ANY) as first:
        refused = ended("dev", "--data", data, *ANY)
        told, advice = lines(refused)
        assert refused.code == 3
        assert str(data) in told
        assert advice == f"  next: stop process {first.process.pid}, or choose another directory with --data"


@pytest.mark.parametrize("below", [".", "deeper/still"])
def test_a_file_where_the_directory_should_be_is_told_as_such(data, below):
    data.write_text("not a directory")
    refused = ended("dev", "--data", data / below, *ANY)
    told, advice = lines(refused)
    assert refused.code == 2
    assert f"there is a file where a directory is needed path={data}" in told
    assert "--data" in advice
    assert data.read_text() == "not a directory"


def test_a_read_only_file_system_is_told_with_ways_out(tmp_path):
    with small_filesystem(tmp_path / "small") as mounted:
        mounted.remount_read_only()
        refused = ended("dev", "--data", mounted.path / "data", *ANY)
    told, advice = lines(refused)
    assert refused.code == 1
    assert "does not take writes" in told
    assert "remount it for writing" in advice


def test_http_and_tls_on_the_kafka_port_are_named_as_such_in_the_log(data):
    with serving("--data", data, *ANY) as drayd:
        host, _, port = drayd.kafka.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: dray\r\n\r\n")
            assert client.recv(1) == b""
        with (
            socket.create_connection((host, int(port)), 30) as client,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            ssl.create_default_context().wrap_socket(client, server_hostname="dray")
        assert drayd.stop() == 0
    ended_by_us = [json.loads(line) for line in drayd.log if "kafka.connection_ended" in line]
    assert [line["reason"] for line in ended_by_us] == ["HTTP on the Kafka port", "TLS on the Kafka port"]
    assert [line["error"].split(":")[0] for line in ended_by_us] == [
        "a client spoke HTTP to the Kafka port",
        "a client spoke TLS to the Kafka port",
    ]
