"""The thread that keeps leases: it sleeps until the next is due, whoever comes."""

import threading

from dray.api.v1 import heaps_pb2 as pb
from dray.client.renewal import LeaseRenewal, Renewing
from dray.client.retrying import now_s

LONG_S = 60.0


class KeptTransport:
    """Renews what it is asked to, and says so."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.renewed = threading.Event()

    def call_from_thread(self, method: object, request: pb.SettleReq, timeout: float) -> pb.SettleResp:
        self.asked.append([one.lease_token for one in request.items])
        self.renewed.set()
        answer = pb.Settled(done=True)
        answer.lease_for.CopyFrom(request.items[0].duration)
        return pb.SettleResp(results=[answer for _ in request.items])


def lease(token: str, seconds: float) -> Renewing:
    return Renewing("jobs", token, seconds, now_s() + seconds, lambda: None)


def test_a_lease_that_is_due_before_all_others_is_renewed_although_it_came_last():
    """SR1"""
    transport = KeptTransport()
    renewal = LeaseRenewal(transport)
    try:
        renewal.keep(lease("long", 10 * LONG_S))
        while renewal._wakes_s > now_s() + 10 * LONG_S:  # until the thread waits for it
            threading.Event().wait(0.01)
        renewal.keep(lease("short", 0.3))
        assert transport.renewed.wait(LONG_S)
        assert transport.asked[0] == ["short"]
    finally:
        renewal.close()


def test_what_was_settled_is_not_renewed_and_the_others_are():
    """SR2"""
    transport = KeptTransport()
    renewal = LeaseRenewal(transport)
    try:
        for token in ("done", "kept"):
            renewal.keep(lease(token, 0.9))
        renewal.drop("done")
        assert transport.renewed.wait(LONG_S)
        assert transport.asked[0] == ["kept"]
    finally:
        renewal.close()


class Collecting(float):
    """A length at whose use a worker is collected that held another job."""

    def __new__(cls, seconds: float, renewal: LeaseRenewal) -> "Collecting":
        one = super().__new__(cls, seconds)
        one.renewal = renewal
        return one

    def __truediv__(self, other: float) -> float:
        self.renewal.drop("of a worker that nobody holds")
        return float(self) / other


def test_a_job_that_is_let_go_of_while_another_is_kept_stops_nobody():
    """SR2: garbage is collected wherever something is made, and ends blocks of jobs there."""
    renewal = LeaseRenewal(KeptTransport())
    kept = Renewing("jobs", "token", Collecting(30.0, renewal), now_s() + 30, lambda: None)
    keeping = threading.Thread(target=renewal.keep, args=(kept,), daemon=True)
    keeping.start()
    keeping.join(LONG_S)
    assert not keeping.is_alive()
    renewal.close()
