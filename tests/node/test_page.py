"""The page: what a person sees of a broker, without script, in any size, whatever names and messages hold."""

import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from html.parser import HTMLParser

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dray.servers.http import page
from dray.servers.http.overview import BrokerRow, DiskRow, Overview, TopicPage, TopicRow
from dray.telemetry import Warned
from dray.testing import broker
from tests.cli.daemon import ended, serving
from tests.disk.mounts import small_filesystem

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;</style>"


class Seen(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [str(value) for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def get(address: str, path: str = "/") -> tuple[int, str, dict[str, str]]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def full_of(text: str) -> Overview:
    return Overview(
        version=text,
        cluster_id=text,
        now_ms=1 << 62,
        states={text: text},
        brokers=[BrokerRow(broker_id=1, address=text, zone=text, build=text, started_ms=0, is_this=False)],
        disks=[DiskRow(what=text, path=text, free_bytes=1, size_bytes=0, is_full=True)],
        log_bytes=1,
        entries=1,
        topics=TopicPage(
            rows=[TopicRow(name=text, partitions=2, records=0, size_bytes=0, start=0, end=0)],
            found=5_000, before=2_000, size_bytes=0,
        ),
        warnings=[Warned(at=text, level=text, sentence=text, facts=text)],
    )  # fmt: skip


def test_whatever_names_and_messages_hold_the_page_has_no_markup_of_theirs():
    """HT2"""
    shown = [
        (page.overview_page(full_of(HOSTILE), HOSTILE), page.overview_page(full_of("plain"), "plain")),
        (page.topic_page(HOSTILE, 5_000, 2_000, []), page.topic_page("plain", 5_000, 2_000, [])),
        (page.missing_page(HOSTILE), page.missing_page("plain")),
    ]
    for hostile, plain in shown:
        assert Seen(hostile).tags == Seen(plain).tags
        assert Seen(hostile).attributes == Seen(plain).attributes
        assert HOSTILE.split("&")[0] in Seen(hostile).text
        assert not {"script", "img", "link", "iframe"} & Seen(hostile).tags
        assert all(link.startswith("/") and not link.startswith("//") for link in Seen(hostile).links)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 60, "3072.0 PiB")],
)
def test_sizes_are_told_in_units_of_1024(count, shown):
    assert page.size(count) == shown


def test_a_broker_shows_itself_its_topics_and_its_disk(tmp_path):
    with broker(tmp_path, topics__partitions=1) as dray:
        producer = Producer({"bootstrap.servers": dray.bootstrap})
        for number in range(7):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0
        status, text, headers = get(dray.http)
        seen = Seen(text)
        assert status == 200
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "ready" in seen.text
        assert dray.bootstrap in seen.text
        assert str(tmp_path / "objects") in seen.text
        assert "orders" in seen.text
        assert "0 to 7" in seen.text
        status, text, _ = get(dray.http, "/topics/orders")
        assert status == 200
        assert "Records Size 0 0 7 7 " in " ".join(Seen(text).text.split())
        assert get(dray.http, "/topics/%3Cscript%3E")[0] == 404
        for nonsense in (
            "/?from=-1",
            "/?from=x",
            "/?from=" + "9" * 30,
            "/?q=%00&from=5",
            "/topics/orders?from=99999999",
        ):
            assert get(dray.http, nonsense)[0] == 200


@pytest.mark.slow
def test_a_thousand_topics_are_all_found_without_a_script():
    with broker() as dray:
        admin = AdminClient({"bootstrap.servers": dray.bootstrap})
        names = {f"shop.{number:04d}" for number in range(1_005)}
        for future in admin.create_topics([NewTopic(name, 2) for name in sorted(names)]).values():
            future.result(120)
        first, rest = get(dray.http)[1], get(dray.http, "/?from=1000")[1]
        assert "/?from=1000" in Seen(first).links
        assert {name for name in names if name in first} | {name for name in names if name in rest} == names
        found = Seen(get(dray.http, "/?q=.0007")[1])
        assert [link for link in found.links if link.startswith("/topics/")][:1] == ["/topics/shop.0007"]
        assert "1 topics" in found.text
        metrics = get(dray.http, "/metrics")[1]
        assert "dray_topics 1005.0" in metrics
        assert metrics.count("\ndray_topic_bytes{") == 1_000


@pytest.mark.slow
def test_what_a_client_sent_is_shown_as_text_among_the_warnings(tmp_path):
    """HT2: with the real `drayd`; the name of a client is whatever the client says."""
    with serving("--data", tmp_path / "data", "--kafka", "0", "--http", "0", "--grpc", "") as drayd:
        host, _, port = drayd.kafka.rpartition(":")
        name = HOSTILE.encode()
        request = struct.pack(">hhih", 999, 0, 1, len(name)) + name
        with socket.create_connection((host, int(port)), 30) as client:
            client.sendall(struct.pack(">i", len(request)) + request)
            assert client.recv(1) == b"", "it is closed, for there is nothing to answer"
        text = get(drayd.http)[1]
        assert "a client sent an API key or version it was not offered" in Seen(text).text
        assert "alert(1)" in Seen(text).text
        assert "script" not in Seen(text).tags


@pytest.mark.slow
def test_metrics_tell_room_sizes_and_the_process(tmp_path):
    with serving("--data", tmp_path / "data", "--kafka", "0", "--http", "0", "--grpc", "") as drayd:
        producer = Producer({"bootstrap.servers": drayd.kafka})
        producer.produce("orders", b"v" * 5_000)
        assert producer.flush(60) == 0
        lines = get(drayd.http, "/metrics")[1].splitlines()
        values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
    assert values['dray_topic_bytes{topic="orders"}'] > 5_000
    assert 0 < values['dray_disk_free_bytes{kept="records"}'] < values['dray_disk_size_bytes{kept="records"}']
    assert values['dray_disk_free_bytes{kept="log"}'] > 0
    assert values['dray_log_bytes{domain="0"}'] > 0
    assert values["process_resident_memory_bytes"] > 1 << 20
    assert values["process_open_fds"] > 3


@pytest.mark.slow
def test_a_full_disk_is_told_by_readiness_the_page_and_the_doctor(tmp_path):
    with small_filesystem(tmp_path / "small", 32) as mounted:
        data, filler = mounted.path / "data", mounted.path / "filler"
        reserve = ("--set", "broker.disk_reserve=8MiB")
        with serving("--data", data, "--kafka", "0", "--http", "0", "--grpc", "", *reserve) as drayd:
            assert get(drayd.http, "/readyz")[0] == 200
            assert ended("doctor", "--data", data, *reserve).code == 0
            filler.write_bytes(bytes(28 << 20))
            status, states = until(drayd.http, 503)
            assert status == 503
            assert "the disk is full" in states["disk"]
            assert (states["metadata"], states["store"]) == ("ok", "ok")
            text = Seen(get(drayd.http)[1]).text
            assert "not ready" in text
            assert "the disk is full" in text
            found = ended("doctor", "--data", data, *reserve, "--format", "json")
            assert found.code == 1
            [disk] = [one for one in json.loads(found.stdout)["findings"] if one["check"] == "disk"]
            assert disk["state"] == "fail"
            assert "free some space" in disk["next"]
            assert get(drayd.http, "/livez")[0] == 200
            filler.unlink()
            assert until(drayd.http, 200)[0] == 200


def until(http: str, wanted: int) -> tuple[int, dict[str, str]]:
    """A look at the disk serves for two seconds."""
    pause = threading.Event()
    for _ in range(150):
        status, body, _ = get(http, "/readyz")
        if status == wanted:
            break
        pause.wait(0.2)
    return status, json.loads(body)
