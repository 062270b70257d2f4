"""Recording, reading back, payloads, classification and the report."""

import io
import json
import subprocess
import sys
import threading
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.errors import Corrupt, Invalid
from dray.testing.history import (
    Limits,
    Outcome,
    Recorder,
    Value,
    Verdict,
    as_json,
    as_text,
    check,
    classify,
    decode_events,
    decode_value,
    encode_events,
    encode_value,
    fold_history,
    judge,
    make_report,
)
from dray.testing.history.events import (
    At,
    Done,
    Fail,
    Info,
    Invoke,
    Latest,
    Nemesis,
    Ok,
    Poll,
    Polled,
    Run,
    Send,
    Sent,
    number_of,
    partition,
    topic_of,
)
from dray.testing.history.timeline import FOREVER, Status
from tests.history.stories import TP, Story


def small():
    return Story().send("w:0", 0).drain([(0, "w:0")]).events()


# Files.


def test_a_file_cut_at_any_byte_loses_at_most_its_last_line():
    """HC2."""
    raw = encode_events(small())
    whole, _ = decode_events(raw)
    for end in range(len(raw)):
        events, cut = decode_events(raw[:end])
        lines = raw[:end].count(b"\n")
        assert events == whole[: len(events)]
        assert len(events) in (lines, lines + 1)
        assert cut == (not raw[:end].endswith(b"\n") and end > 0 and len(events) == lines)


def test_damage_before_the_last_line_is_refused_with_its_line_number():
    """HC2."""
    lines = encode_events(small()).split(b"\n")
    lines[1] = lines[1][:-2]
    with pytest.raises(Corrupt, match="line=2"):
        decode_events(b"\n".join(lines))
    with pytest.raises(Corrupt, match="line=2"):
        decode_events(lines[0] + b"\n\xff\xfe\n")


def test_a_line_from_a_newer_program_is_refused_not_skipped():
    raw = encode_events(small()) + b'{"k":"ok","op":0,"t":99,"result":{"f":"teleported"}}\n'
    with pytest.raises(Corrupt):
        decode_events(raw)


def test_threads_that_record_at_once_write_whole_lines_in_the_order_of_time():
    """HC1."""
    sink, clock = io.BytesIO(), count()
    recorder = Recorder(sink, lambda: next(clock))
    recorder.run(Run(seed=7, config={"producers": 8}))

    def produce(name):
        for seq in range(100):
            op = recorder.invoke(name, Send(tp=TP, value=f"{name}:{seq}", crc=0, producer=name))
            (recorder.info if seq % 3 else recorder.fail)(op, "why")

    threads = [threading.Thread(target=produce, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.note("nemesis", Nemesis(fault="kill", target="b", start=True))
    op = recorder.invoke("q", Latest(tp=TP))
    recorder.ok(op, At(offset=0))

    events, cut = decode_events(sink.getvalue())
    history = fold_history(events, cut=cut)
    assert len(history.ops) == 801
    assert [op.start_ns for op in history.ops] == sorted(op.start_ns for op in history.ops)
    assert history.run == Run(seed=7, config={"producers": 8})


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([Ok(op=1, t_ns=1, result=Done())], "never invoked"),
        ([Invoke(op=1, t_ns=1, process="p", call=Poll()), Invoke(op=1, t_ns=2, process="p", call=Poll())], "twice"),
        (
            [
                Invoke(op=1, t_ns=1, process="p", call=Poll()),
                Info(op=1, t_ns=2, error=""),
                Fail(op=1, t_ns=3, error=""),
            ],
            "completed twice",
        ),
        ([Invoke(op=1, t_ns=5, process="p", call=Poll()), Ok(op=1, t_ns=4, result=Polled())], "runs back"),
        ([Invoke(op=1, t_ns=1, process="p", call=Poll()), Ok(op=1, t_ns=4, result=Sent(offset=1))], "does not fit"),
    ],
)
def test_a_history_that_no_honest_recorder_writes_is_refused(events, why):
    with pytest.raises(Corrupt, match=why):
        fold_history(events)


def test_an_operation_without_completion_is_unknown_for_ever():
    [op] = fold_history([Invoke(op=1, t_ns=1, process="p", call=Poll())]).ops
    assert (op.status, op.end_ns) == (Status.INFO, FOREVER)


def test_operations_at_one_instant_keep_the_order_of_their_lines():
    story = Story().send("w:0", 0, at=(5, 5)).latest(0, at=(5, 5)).drain([(0, "w:0")])
    assert story.anomalies() == {"stale-tail"}


def test_partition_names_can_be_taken_apart():
    assert (topic_of(partition("a-b.c", 12)), number_of(partition("a-b.c", 12))) == ("a-b.c", 12)
    with pytest.raises(Invalid):
        partition("a/b", 0)


# Values.

names = st.text(min_size=1, max_size=20)
values = st.builds(Value, producer=names, seq=st.integers(0, 2**53), tp=names)


@given(value=values, size=st.integers(0, 4096))
def test_a_payload_says_what_it_was_made_from_and_has_the_wanted_size(value, size):
    payload = encode_value(value, size)
    assert decode_value(payload) == value
    assert len(payload) == max(size, len(encode_value(value)))


@settings(max_examples=200)
@given(value=values, size=st.integers(0, 200), place=st.integers(0), bit=st.integers(0, 7))
def test_one_flipped_bit_anywhere_is_seen(value, size, place, bit):
    payload = bytearray(encode_value(value, size))
    payload[place % len(payload)] ^= 1 << bit
    with pytest.raises(Corrupt):
        decode_value(payload)


@given(raw=st.binary(max_size=64), value=values)
def test_foreign_and_cut_bytes_are_no_payload(raw, value):
    payload = encode_value(value)
    for bad in (raw, payload[: len(raw) % len(payload)], payload + raw + b"x"):
        with pytest.raises(Corrupt):
            decode_value(bad)


# Outcomes.


def test_only_a_proof_is_a_failure():
    assert classify(0) is Outcome.OK
    assert classify(10) is Outcome.FAIL  # too large, however often it was sent
    for code in (-1, 3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 56, 89, 9999):
        assert classify(code, single_attempt=True) is Outcome.INFO, code


def test_what_depends_on_the_cluster_is_a_proof_only_of_a_single_attempt():
    for code in (22, 25, 29, 36, 45, 47, 113):
        assert classify(code) is Outcome.INFO
        assert classify(code, single_attempt=True) is Outcome.FAIL


# Reports.


def verdict(story, **limits):
    return judge(story.judge(Limits(**limits)))


def test_a_clean_history_with_reads_is_valid():
    assert verdict(Story().send("w:0", 0).drain([(0, "w:0")])) == (Verdict.VALID, [])


def test_too_few_successes_prove_nothing():
    story = Story().send("w:0", 0).send("w:1", status="info").send("w:2", status="fail").drain([(0, "w:0")])
    found, reasons = verdict(story)
    assert found is Verdict.UNKNOWN
    assert "33%" in reasons[0]


def test_empty_polls_do_not_make_up_for_failed_sends():
    story = Story().send("w:0", 0).send("w:1", status="info").send("w:2", status="info")
    for _ in range(20):
        story.assign(p="e").poll(p="e")
    assert verdict(story.drain([(0, "w:0")]))[0] is Verdict.UNKNOWN


def test_a_partition_that_nobody_read_proves_nothing():
    found, reasons = verdict(Story().send("w:0", 0).send("w:1", 0, tp="t/1").assign().poll([(0, "w:0")]))
    assert (found, reasons) == (Verdict.UNKNOWN, ["nobody read from t/1"])


def test_an_empty_history_proves_nothing():
    assert judge(check(fold_history([])))[0] is Verdict.UNKNOWN


def test_an_anomaly_outweighs_a_lack_of_evidence():
    assert verdict(Story().send("w:0", 0).send("w:1", status="info").send("w:2", -1).latest(0))[0] is Verdict.INVALID


def test_a_report_shows_the_smallest_witnesses_among_their_neighbours():
    story = Story()
    for seq in range(20):
        story.send(f"w:{seq}", seq)
    story.drain([(seq, f"w:{seq}") for seq in range(20) if seq not in (3, 4, 7, 9, 11, 12, 15)])
    report = make_report(story.judge())
    assert report.anomalies == {"lost-write": 7, "poll-skip": 5}
    assert len(report.witnesses["lost-write"]) == 5
    shown = report.witnesses["lost-write"][0]
    assert shown.where == TP
    assert next(line for line in shown.ops if line.startswith("> ")).count('"w:3"') == 1
    assert len(shown.ops) == 5
    assert "lost-write: 7, the smallest:" in as_text(report)
    assert json.loads(as_json(report))["verdict"] == "invalid"


def test_a_report_tells_lag_causes_and_what_to_repeat():
    story = Story().assign().send("w:0", 0, at=(10, 1_000_000)).poll([(0, "w:0")], at=(20, 6_000_000))
    story.send("w:1", status="info").drain([(0, "w:0")])
    events = [Run(seed=42, version="abc", config={"producers": 4}), *story.events()]
    report = make_report(check(fold_history(events)))
    assert (report.seed, report.version, report.config) == (42, "abc", {"producers": 4})
    assert report.worst_lag_ms == 5.0
    assert report.info_causes == {"send: why": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "code", "said"),
    [
        (Story().send("w:0", 0).drain([(0, "w:0")]), 0, "verdict: valid"),
        (Story().send("w:0", 0).latest(0).drain([(0, "w:0")]), 1, "stale-tail"),
        (Story().send("w:0", 0), 2, "verdict: unknown"),
    ],
)
def test_the_program_prints_the_report_and_exits_by_the_verdict(tmp_path, story, code, said):
    path = tmp_path / "history.jsonl"
    path.write_bytes(encode_events(story.events()))
    ran = subprocess.run(
        [sys.executable, "-m", "dray.testing.history", path], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, said in ran.stdout) == (code, True)


@pytest.mark.slow
def test_the_program_refuses_what_it_cannot_read(tmp_path):
    for bad in (tmp_path / "absent.jsonl", tmp_path / "bad.jsonl"):
        (tmp_path / "bad.jsonl").write_bytes(b"{}\n")
        ran = subprocess.run(
            [sys.executable, "-m", "dray.testing.history", bad], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, "cannot be read" in ran.stderr) == (2, True)
