"""Client histories and their checker: what did the clients see, and may they have seen it?"""

from dray.testing.history.anomalies import Anomaly, Findings, Witness
from dray.testing.history.checker import Judgement, check
from dray.testing.history.journal import Recorder, decode_events, encode_events, read_events
from dray.testing.history.limits import Limits
from dray.testing.history.outcomes import Outcome, classify
from dray.testing.history.report import Report, Verdict, as_json, as_text, judge, make_report
from dray.testing.history.timeline import History, fold_history
from dray.testing.history.values import Value, checksum, decode_value, encode_value

__all__ = [
    "Anomaly",
    "Findings",
    "History",
    "Judgement",
    "Limits",
    "Outcome",
    "Recorder",
    "Report",
    "Value",
    "Verdict",
    "Witness",
    "as_json",
    "as_text",
    "check",
    "checksum",
    "classify",
    "decode_events",
    "decode_value",
    "encode_events",
    "encode_value",
    "fold_history",
    "judge",
    "make_report",
    "read_events",
]
