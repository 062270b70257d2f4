"""HOST:PORT as people write it, and what clients are told."""

import socket

import pytest

from dray.node import addresses
from dray.node.addresses import BadAddress, HostPort, advertised, own_address, parse_host_port
from dray.node.listening import PortTaken, take


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("broker.example:0", "broker.example", 0),
        ("[::1]:9092", "::1", 9092),
        ("8081", "127.0.0.1", 8081),
        ("0", "127.0.0.1", 0),
    ],
)
def test_an_address_is_host_and_port_or_a_port_of_this_machine(text, host, port):
    assert parse_host_port(text, "kafka.listen") == HostPort(host=host, port=port)


@pytest.mark.parametrize(
    "text", ["", "nowhere", ":9092", "host:", "host:x", "host:65536", "65536", "::1:9092", "[]:1", "-1"]
)
def test_anything_else_is_refused_with_what_is_wanted(text):
    with pytest.raises(BadAddress, match=r"expected HOST:PORT such as .* or a port alone.*key=kafka\.listen"):
        parse_host_port(text, "kafka.listen")


@pytest.mark.parametrize(
    ("host", "is_wildcard"),
    [
        ("0.0.0.0", True),
        ("0", True),
        ("::", True),
        ("0:0::0", True),
        ("::ffff:0.0.0.0", True),
        ("127.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("0.example", False),
        ("broker.example", False),
        ("x" * 300, False),
    ],
)
def test_a_wildcard_is_known_in_any_spelling(host, is_wildcard):
    assert HostPort(host=host, port=1).is_wildcard is is_wildcard


@pytest.mark.parametrize("wanted", ["0.0.0.0:9092", "[::]:9092", "0:9092", "9092"])
def test_what_nobody_can_connect_to_is_not_advertised(wanted):
    with pytest.raises(BadAddress, match="clients cannot connect to this"):
        advertised(HostPort(host="127.0.0.1", port=9092), wanted)


def test_clients_are_told_what_was_asked_for_with_the_port_that_was_taken():
    listening = HostPort(host="0.0.0.0", port=9092)
    assert str(advertised(listening, "broker.example:9093")) == "broker.example:9093"
    assert str(advertised(listening, "broker.example:0")) == "broker.example:9092"
    assert advertised(HostPort(host="::1", port=7), None) == HostPort(host="::1", port=7)


@pytest.mark.parametrize(("host", "family"), [("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)])
def test_who_listens_everywhere_tells_an_address_of_the_same_kind(host, family):
    told = advertised(HostPort(host=host, port=9092), None)
    assert not told.is_wildcard
    assert told.port == 9092
    assert socket.getaddrinfo(told.host, None, flags=socket.AI_NUMERICHOST)[0][0] == family


def test_a_machine_that_reaches_nobody_tells_its_loopback(monkeypatch):
    class Alone(socket.socket):
        def connect(self, address):
            raise OSError("Network is unreachable")

    monkeypatch.setattr(addresses.socket, "socket", Alone)
    assert (own_address(socket.AF_INET), own_address(socket.AF_INET6)) == ("127.0.0.1", "::1")


def test_the_page_is_named_as_a_browser_here_finds_it():
    urls = [HostPort(host=host, port=7433).url for host in ("127.0.0.1", "0.0.0.0", "::", "::1", "broker.example")]
    assert urls == [
        "http://127.0.0.1:7433/",
        "http://127.0.0.1:7433/",
        "http://[::1]:7433/",
        "http://[::1]:7433/",
        "http://broker.example:7433/",
    ]


def test_all_addresses_of_a_name_are_taken_with_one_port_or_none():
    taken = take("localhost:0", "kafka.listen", "--kafka")
    try:
        ports = {bound.getsockname()[1] for bound in taken.sockets}
        assert ports == {taken.address.port}
        first = taken.sockets[0]
        first.listen()
        with pytest.raises(PortTaken, match=f"port {taken.address.port} is taken"):
            take(str(taken.address), "http.listen", "--http")
    finally:
        for bound in taken.sockets:
            bound.close()
