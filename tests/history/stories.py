"""Small histories, written by hand: each operation is placed in time."""

import zlib

from dray.testing.history import Judgement, Limits, check, fold_history
from dray.testing.history.events import (
    Assign,
    At,
    Commit,
    Committed,
    Crashed,
    Created,
    CreateTopic,
    DeleteTopic,
    Done,
    Earliest,
    Fail,
    Info,
    Invoke,
    Latest,
    Nemesis,
    Noted,
    Ok,
    Poll,
    Polled,
    ProducerOpened,
    Rebalanced,
    Seek,
    Send,
    Sent,
)

TP = "t/0"
OTHER = "t/1"
SECOND = 1_000_000_000


def crc_of(value):
    return zlib.crc32(value.encode())


class Story:
    """A clock that moves by one for each half of an operation, unless told when."""

    def __init__(self):
        self._events = []
        self._ops = 0
        self._now = 0

    def op(self, process, call, result=None, *, status="ok", at=None, error="why"):
        start, end = at or (self._now + 1, self._now + 2)
        self._now = max(self._now, end)
        op, self._ops = self._ops, self._ops + 1
        self._events.append((start, Invoke(op=op, t_ns=start, process=process, call=call)))
        if status == "ok":
            self._events.append((end, Ok(op=op, t_ns=end, result=result if result is not None else Done())))
        elif status != "none":
            kind = Fail if status == "fail" else Info
            self._events.append((end, kind(op=op, t_ns=end, error=error)))
        return self

    def note(self, note, process="nemesis", at=None):
        at = self._now + 1 if at is None else at
        self._now = max(self._now, at)
        self._events.append((at, Noted(t_ns=at, process=process, note=note)))
        return self

    def producer(self, name="w", **promises):
        return self.note(ProducerOpened(producer=name, **promises), process=name)

    def send(self, value, offset=None, *, tp=TP, p="w", producer=None, status="ok", at=None):
        call = Send(tp=tp, value=value, crc=crc_of(value), producer=producer or p)
        return self.op(p, call, Sent(offset=offset), status=status, at=at)

    def assign(self, positions=None, *, p="c", drain=False, at=None):
        return self.op(p, Assign(positions={TP: 0} if positions is None else positions, drain=drain), at=at)

    def seek(self, offset, *, p="c", tp=TP):
        return self.op(p, Seek(tp=tp, offset=offset))

    def poll(self, records=(), *, p="c", tp=TP, at=None, pos=None, end=None, status="ok"):
        """`records`: pairs of offset and value, or triples with a checksum."""
        full = [record if len(record) == 3 else (*record, crc_of(record[1])) for record in records]
        positions = {} if pos is None else {tp: pos}
        ends = {} if end is None else {tp: end}
        return self.op(
            p, Poll(positions=positions), Polled(records={tp: full} if full else {}, ends=ends), at=at, status=status
        )

    def drain(self, records, *, tp=TP, start=0, p="d"):
        return self.assign({tp: start}, p=p, drain=True).poll(records, p=p, tp=tp)

    def latest(self, offset, *, tp=TP, p="q", at=None):
        return self.op(p, Latest(tp=tp), At(offset=offset), at=at)

    def earliest(self, offset, *, tp=TP, p="q", at=None):
        return self.op(p, Earliest(tp=tp), At(offset=offset), at=at)

    def commit(self, offset, *, generation=-1, member="m", status="ok", at=None, tp=TP):
        call = Commit(group="g", tp=tp, offset=offset, generation=generation, member=member)
        return self.op(member, call, status=status, at=at)

    def committed(self, offset, *, at=None, tp=TP):
        return self.op("q", Committed(group="g", tp=tp), At(offset=offset), at=at)

    def rebalanced(self, generation, member, owned, *, per_member=False, at=None):
        note = Rebalanced(group="g", generation=generation, member=member, owned=owned, per_member=per_member)
        return self.note(note, process=member, at=at)

    def create(self, topic_id="", *, at=None, status="ok"):
        return self.op("admin", CreateTopic(topic="t"), Created(topic_id=topic_id), at=at, status=status)

    def delete(self, *, at=None, status="ok"):
        return self.op("admin", DeleteTopic(topic="t"), at=at, status=status)

    def fault(self, *, start, at=None):
        return self.note(Nemesis(fault="kill", target="b1", start=start), at=at)

    def crash(self, p):
        return self.note(Crashed(), process=p)

    def events(self):
        return [event for _, event in sorted(self._events, key=lambda pair: pair[0])]

    def judge(self, limits=None) -> Judgement:
        return check(fold_history(self.events()), limits or Limits())

    def anomalies(self, limits=None):
        return {anomaly.value for anomaly in self.judge(limits).findings.counts}
