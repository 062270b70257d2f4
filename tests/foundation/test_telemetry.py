"""Metrics and log events: declared once, named by the rules, written as JSON lines."""

import io
import json
import random
import subprocess
import sys
import threading

import pytest
from prometheus_client import CollectorRegistry, Histogram

from dray import telemetry


@pytest.fixture
def lines():
    """Log lines, parsed; the real stderr is set again afterwards."""
    stream = io.StringIO()

    def parsed() -> list[dict[str, object]]:
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    parsed.stream = stream
    yield parsed
    telemetry.configure_logging()


def test_a_metric_is_declared_once():
    telemetry.counter("dray_test_once_total", "Something.")
    with pytest.raises(ValueError, match="declared twice: dray_test_once_total"):
        telemetry.gauge("dray_test_once_total", "Something else.")


def test_an_event_is_declared_once():
    telemetry.event("test.once", "it happened")
    with pytest.raises(ValueError, match=r"declared twice: test\.once"):
        telemetry.event("test.once", "it happened again")


@pytest.mark.parametrize("declare", [telemetry.counter, telemetry.gauge])
def test_a_metric_without_our_prefix_is_refused_and_not_remembered(declare):
    with pytest.raises(ValueError, match="without the dray_ prefix: kafka_lag_total"):
        declare("kafka_lag_total", "Lag.")
    assert "kafka_lag_total" not in telemetry.declared()[1]


def test_declared_names_are_told_with_their_descriptions():
    telemetry.histogram("dray_test_told_seconds", "Time.", telemetry.SECONDS, ["op"])
    telemetry.event("test.told", "it was told")
    events, metrics = telemetry.declared()
    assert metrics["dray_test_told_seconds"] == telemetry.Metric(kind="histogram", description="Time.", labels=("op",))
    assert events["test.told"] == "it was told"
    assert "dray_test_told_seconds" in {family.name for family in telemetry.REGISTRY.collect()}


def test_a_log_line_is_one_json_object_whatever_its_fields_hold(lines):
    telemetry.configure_logging("info", lines.stream)
    log = telemetry.logger(domain=3)
    log.info(telemetry.event("test.line", "a line"), text='two\nlines and "quotes"', size=7)
    log.warning("test.line", reason=ValueError("bad"))
    assert len(lines.stream.getvalue().splitlines()) == 2
    first, second = lines()
    assert first["event"] == "test.line"
    assert (first["level"], first["domain"], first["size"]) == ("info", 3, 7)
    assert first["text"] == 'two\nlines and "quotes"'
    assert str(first["timestamp"]).endswith("Z")
    assert second["level"] == "warning"


def test_lines_below_the_level_are_left_out(lines):
    telemetry.configure_logging("warning", lines.stream)
    telemetry.logger().info("test.quiet")
    telemetry.logger().error("test.loud")
    assert [line["event"] for line in lines()] == ["test.loud"]


def test_an_exception_is_a_field_of_its_line(lines):
    telemetry.configure_logging("info", lines.stream)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        telemetry.logger().exception("test.failed")
    (line,) = lines()
    assert "RuntimeError: boom" in str(line["exception"])


def test_an_unknown_level_is_refused():
    with pytest.raises(KeyError):
        telemetry.configure_logging("loud")


def test_logs_go_to_stderr_and_leave_stdout_alone():
    script = "from dray import telemetry as t; t.configure_logging(); t.logger().info('test.where', n=1)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == ""
    assert json.loads(ended.stderr)["event"] == "test.where"


def test_a_line_that_cannot_be_written_stops_nobody_and_the_next_goes_where_stderr_is_then(monkeypatch):
    closed, now = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", closed)
    telemetry.configure_logging(form="json")
    log = telemetry.logger(who="me")
    closed.close()
    log.info("nobody.reads_this")
    monkeypatch.setattr(sys, "stderr", now)
    log.info("somebody.reads_this")
    assert [json.loads(line)["event"] for line in now.getvalue().splitlines()] == ["somebody.reads_this"]


def test_a_full_disk_under_stderr_stops_nobody():
    program = (
        "from dray import telemetry; telemetry.logger().error('test.lost'); telemetry.logger().error('test.lost'); "
        "print('goes on')"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True)
    assert done.stdout == "goes on\n"


def test_a_line_for_people_has_the_sentence_the_facts_and_no_control_characters():
    stream = io.StringIO()
    telemetry.configure_logging("info", stream, "text")
    try:
        telemetry.event("test.people", "something happened to a client")
        telemetry.logger().warning("test.people", client="\x1b[2Jevil\n", size=7, why="two words")
    finally:
        telemetry.configure_logging()
    [line] = stream.getvalue().splitlines()
    assert line[9:] == (
        'warning  something happened to a client  (test.people client="\\u001b[2Jevil\\n" size=7 why="two words")'
    )


def test_the_last_warnings_are_kept_and_only_so_many():
    stream = io.StringIO()
    telemetry.configure_logging("info", stream)
    try:
        for number in range(telemetry.KEPT_WARNINGS + 5):
            telemetry.logger().warning("test.kept", number=number)
            telemetry.logger().info("test.not_kept")
    finally:
        telemetry.configure_logging()
    kept = telemetry.last_warnings()
    assert len(kept) == telemetry.KEPT_WARNINGS
    assert kept[-1].facts == f"test.kept number={telemetry.KEPT_WARNINGS + 4}"


def test_a_histogram_tells_what_the_library_would():
    """Whatever is counted together: the same buckets, count and sum at every scrape."""
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    dice, apart = random.Random(seed), CollectorRegistry()
    ours = telemetry.histogram("dray_test_alike_seconds", "Time.", telemetry.SECONDS, ["op"]).labels("put")
    bounds = telemetry.SECONDS
    plain = Histogram("dray_test_alike_seconds", "Time.", ["op"], buckets=bounds, registry=apart).labels("put")
    for amounts in (0, 1, 100, 255, 1, 700):
        for _ in range(amounts):
            amount = dice.choice([0.0, dice.expovariate(20), *telemetry.SECONDS, 31.0])
            ours.observe(amount)
            plain.observe(amount)
        told, wanted = samples(telemetry.REGISTRY), samples(apart)
        assert wanted.keys() == told.keys()
        for name, value in wanted.items():
            assert told[name] == pytest.approx(value), name


def samples(registry):
    """Of the histograms of the test above."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if metric.name == "dray_test_alike_seconds" and not sample.name.endswith("_created")
    }


def test_a_histogram_loses_nothing_between_threads():
    apart = telemetry.histogram("dray_test_threads_seconds", "Time.", telemetry.SECONDS)
    threads = [threading.Thread(target=lambda: [apart.observe(1.0) for _ in range(20_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        telemetry.REGISTRY.get_sample_value("dray_test_threads_seconds_count")
    assert telemetry.REGISTRY.get_sample_value("dray_test_threads_seconds_count") == 80_000
    assert telemetry.REGISTRY.get_sample_value("dray_test_threads_seconds_sum") == 80_000.0


def test_amounts_are_counted_by_one_thread_at_a_time():
    """Two that count the same amounts at once would tell of each twice."""
    ours = telemetry.histogram("dray_test_turns_seconds", "Time.", telemetry.SECONDS)

    class Watched(list[float]):
        looks = 0

        def __getitem__(self, at):
            assert ours._counting.locked()
            self.looks += 1
            return super().__getitem__(at)

        def __delitem__(self, at):
            assert ours._counting.locked()
            super().__delitem__(at)

    ours._new = Watched()
    for _ in range(700):
        ours.observe(1.0)
    assert ours._new.looks == 2, "when there are many"
    assert telemetry.REGISTRY.get_sample_value("dray_test_turns_seconds_count") == 700
    assert ours._new.looks > 2, "and when somebody asks"
