"""Every anomaly has a history that shows it, and a near miss that does not."""

import pytest

from dray.testing.history import Limits
from tests.history.stories import OTHER, SECOND, TP, Story

A = ((0, "w:0"), (1, "w:1"), (2, "w:2"))


def three(**promises):
    """Three values, acknowledged one after the other."""
    return Story().producer(**promises).send("w:0", 0).send("w:1", 1).send("w:2", 2)


FAULTY = {
    # name: (history, what must be found; implied anomalies included)
    "two values at one offset": (
        lambda: three().assign().poll(A).drain([A[0], (1, "w:1"), (2, "w:2")]).send("x:0", 1, p="x", at=(1, 90)),
        {"inconsistent-offset", "lost-write"},
    ),
    "two readers see other values at one offset": (
        lambda: (
            Story()
            .send("w:0", status="info", at=(1, 9))
            .send("w:1", status="info", at=(2, 10))
            .assign()
            .poll([(0, "w:0")])
            .assign(p="e")
            .poll([(0, "w:1")], p="e")
        ),
        {"inconsistent-offset"},
    ),
    "an idempotent producer's value lies twice": (
        lambda: three(idempotent=True).drain([*A, (3, "w:1")]),
        {"duplicate"},
    ),
    "a producer that never retries has a value twice": (
        lambda: three(retries=False).drain([*A, (3, "w:1")]),
        {"duplicate"},
    ),
    "a value was acknowledged at two offsets": (
        lambda: three().send("w:1", 3).drain([*A, (3, "w:1")]),
        {"duplicate"},
    ),
    "an acknowledged value was passed over by everybody": (
        lambda: three().drain([A[0], A[2]]),
        {"lost-write", "poll-skip"},
    ),
    "a value that was read is gone at the end": (
        lambda: Story().send("w:0", status="info").assign().poll([(0, "w:0")]).send("w:1", 1).drain([(1, "w:1")]),
        {"lost-write", "poll-skip"},
    ),
    "the last value is not in the last reading": (lambda: three().drain(A[:2]), {"unseen"}),
    "LATEST promised more than the last reading found": (lambda: three().latest(5).drain(A), {"unseen"}),
    "a high watermark promised more than the last reading found": (
        lambda: three().assign().poll(A, end=4).drain(A),
        {"unseen"},
    ),
    "without retention a start that moves is loss": (
        lambda: three().earliest(2).drain([A[2]], start=2),
        {"unseen"},
    ),
    "a refused value was read": (
        lambda: three().send("w:3", status="fail").drain([*A, (3, "w:3")]),
        {"aborted-read"},
    ),
    "a value nobody sent": (lambda: three().drain([*A, (3, "ghost:7")]), {"phantom"}),
    "a value was read before it was sent": (
        lambda: Story().assign().poll([(0, "w:0")]).send("w:0", 0).drain([(0, "w:0")]),
        # Its offset existed before it was sent.
        {"phantom", "realtime-order"},
    ),
    "a value of another partition": (
        lambda: three().send("w:9", 0, tp=OTHER).drain([(0, "w:9")], tp=OTHER, p="e").drain([*A, (3, "w:9")]),
        {"misrouted"},
    ),
    "a record that cannot be read": (lambda: three().drain([A[0], (1, "", 7), A[2]]), {"corrupt-payload"}),
    "a record with other bytes": (lambda: three().drain([A[0], (1, "w:1", 7), A[2]]), {"corrupt-payload"}),
    "an ack without offset": (lambda: three().send("w:3", None).drain([*A, (3, "w:3")]), {"ack-without-offset"}),
    "an ack with a negative offset": (lambda: three().send("w:3", -1).drain([*A, (3, "w:3")]), {"ack-without-offset"}),
    "an offset that holds nothing": (
        lambda: three().send("w:3", 4).drain([*A, (4, "w:3")]),
        {"offset-hole"},
    ),
    "a log that begins too late": (lambda: Story().send("w:0", 1).drain([(1, "w:0")]), {"offset-hole"}),
    "an append below an earlier one": (
        lambda: Story().send("a:0", 1, p="a").send("b:0", 0, p="b").drain([(0, "b:0"), (1, "a:0")]),
        {"realtime-order"},
    ),
    "an unknown append below what LATEST had shown": (
        lambda: (
            Story()
            .send("w:0", 0, at=(1, 50))
            .latest(2, at=(2, 3))
            .send("x:0", status="info", p="x", at=(5, 6))
            .drain([(0, "w:0"), (1, "x:0")])
        ),
        {"realtime-order"},
    ),
    "LATEST below an ack": (lambda: three().latest(2).drain(A), {"stale-tail"}),
    "LATEST below an earlier LATEST": (
        lambda: Story().send("w:0", 0, at=(1, 50)).latest(1, at=(2, 3)).latest(0, at=(4, 5)).drain([(0, "w:0")]),
        {"stale-tail"},
    ),
    "LATEST below what was read": (
        lambda: (
            Story()
            .send("w:0", 0, at=(1, 50))
            .assign(at=(2, 3))
            .poll([(0, "w:0")], at=(4, 5))
            .latest(0, at=(6, 7))
            .drain([(0, "w:0")])
        ),
        {"stale-tail"},
    ),
    "nothing comes for eleven seconds": (
        lambda: (
            three()
            .assign()
            .poll(pos=0, at=(10, 20))
            .poll(pos=0, at=(30, 40))
            .poll(pos=0, at=(11 * SECOND, 11 * SECOND + 50))
            .drain(A)
        ),
        {"stale-read"},
    ),
    "an idempotent producer's sends change places": (
        lambda: (
            Story()
            .producer(idempotent=True)
            .send("w:0", 1, at=(2, 8))
            .send("w:1", 0, at=(3, 9))
            .drain([(0, "w:1"), (1, "w:0")])
        ),
        {"nonmonotonic-send"},
    ),
    "an idempotent producer's unknown send lands behind a later one": (
        lambda: (
            Story()
            .producer(idempotent=True)
            .send("w:0", status="info", at=(2, 8))
            .send("w:1", 0, at=(3, 9))
            .drain([(0, "w:1"), (1, "w:0")])
        ),
        {"nonmonotonic-send"},
    ),
    "a consumer jumps over what another one sees": (
        lambda: three().assign().poll([A[0], A[2]]).drain(A),
        {"poll-skip"},
    ),
    "a consumer jumps between two polls": (
        lambda: three().assign().poll([A[0]]).poll([A[2]]).drain(A),
        {"poll-skip"},
    ),
    "a consumer does not begin where it was told": (lambda: three().assign().poll(A[1:]).drain(A), {"poll-skip"}),
    "a consumer goes back": (lambda: three().assign().poll(A[:2]).poll(A[1:]).drain(A), {"nonmonotonic-poll"}),
    "a record comes twice in one poll": (
        lambda: three().assign().poll([A[0], A[0], A[1]]).drain(A),
        {"nonmonotonic-poll"},
    ),
    "EARLIEST goes back": (lambda: three().earliest(2).earliest(1).drain(A[1:], start=1), {"earliest-regress"}),
    "a confirmed commit is not read": (
        lambda: three().drain(A).committed(-1).commit(2).committed(-1),
        {"lost-commit"},
    ),
    "a replaced commit is read": (lambda: three().drain(A).commit(1).commit(2).committed(1), {"lost-commit"}),
    "a commit is read that nobody made": (lambda: three().drain(A).commit(1).committed(3), {"lost-commit"}),
    "reads of a commit go back": (
        lambda: three().drain(A).commit(1).commit(2, status="info", at=(40, 41)).committed(2, at=(42, 43)).committed(1),
        {"commit-regress"},
    ),
    "a commit of an old generation is accepted": (
        lambda: three().drain(A).rebalanced(5, "m", [TP]).rebalanced(6, "n", [TP]).commit(1, generation=5),
        {"zombie-commit-accepted"},
    ),
    "a commit below the generation of an accepted one": (
        lambda: three().drain(A).commit(1, generation=6, member="n").commit(1, generation=5),
        {"zombie-commit-accepted"},
    ),
    "a commit of a member's old epoch is accepted": (
        lambda: (
            three()
            .drain(A)
            .rebalanced(5, "m", [TP], per_member=True)
            .rebalanced(6, "m", [TP], per_member=True)
            .commit(1, generation=5)
        ),
        {"zombie-commit-accepted"},
    ),
    "two members own a partition in one generation": (
        lambda: three().drain(A).rebalanced(5, "m", [TP, OTHER]).rebalanced(5, "n", [TP]),
        {"two-owners"},
    ),
    "a fresh consumer reads a deleted topic": (
        lambda: Story().create("A").send("w:0", 0).delete().assign({TP: None}).poll([(0, "w:0")]),
        {"resurrected-topic"},
    ),
    "a new topic holds records of the deleted one": (
        lambda: Story().create("A").send("w:0", 0).delete().create("B").send("w:1", 1).drain([(0, "w:0"), (1, "w:1")]),
        # Nothing of its own is at offset 0 of the new topic.
        {"resurrected-topic", "unseen"},
    ),
    "a producer stays stuck after the fault": (
        lambda: (
            Story()
            .send("w:0", 0)
            .fault(start=True)
            .fault(start=False)
            .send("w:1", status="none", at=(10, 10))
            .send("x:0", 1, p="x", at=(40 * SECOND, 40 * SECOND + 1))
            .drain([(0, "w:0"), (1, "x:0")])
        ),
        {"no-progress"},
    ),
    "a producer only times out": (
        lambda: (
            Story()
            .send("w:0", 0)
            .send("w:1", status="info", at=(10, 20 * SECOND))
            .send("w:2", status="info", at=(20 * SECOND, 40 * SECOND))
            .drain([(0, "w:0")])
        ),
        {"no-progress"},
    ),
}

STRICT = {"without retention a start that moves is loss"}

SOUND = {
    "acks that overlap may come in any order": lambda: (
        Story().send("a:0", 1, p="a", at=(1, 5)).send("b:0", 0, p="b", at=(4, 8)).drain([(0, "b:0"), (1, "a:0")])
    ),
    "a retry without idempotence may write twice": lambda: three().drain([*A, (3, "w:1")]),
    "an ack that was read by one consumer is not lost": lambda: three().assign().poll(A),
    "nobody passed over an unread ack": lambda: three().assign().poll(A[:1]),
    "an unknown value that was never written": lambda: three().send("w:3", status="info").drain(A),
    "an unknown value that was written": lambda: three().send("w:3", status="none").drain([*A, (3, "w:3")]),
    "an unknown value that is written after its answer": lambda: (
        Story().send("w:0", status="info").send("x:0", 0, p="x").drain([(0, "x:0"), (1, "w:0")])
    ),
    "a refused value that nobody reads": lambda: three().send("w:3", status="fail").drain(A),
    "retention takes what a later EARLIEST leaves out": lambda: three().drain([A[2]], start=2).earliest(2),
    "a consumer is thrown forward by retention": lambda: (
        three().assign().poll(A[:1]).poll(A[2:]).earliest(2).drain(A[2:], start=2)
    ),
    "LATEST beside an ack": lambda: Story().send("w:0", 0, at=(1, 9)).latest(0, at=(2, 10)).drain([(0, "w:0")]),
    "two LATEST that overlap": lambda: (
        Story().send("w:0", 0, at=(1, 50)).latest(1, at=(2, 6)).latest(0, at=(5, 8)).drain([(0, "w:0")])
    ),
    "a wait that a fault explains": lambda: (
        three()
        .assign()
        .fault(start=True)
        .poll(pos=0, at=(10, 20))
        .poll(pos=0, at=(11 * SECOND, 11 * SECOND + 50))
        .fault(start=False)
        .drain(A)
    ),
    "a wait at the end of the log": lambda: (
        three()
        .assign({TP: 3})
        .poll(pos=3, at=(10, 20))
        .poll(pos=3, at=(30, 40))
        .poll(pos=3, at=(11 * SECOND, 11 * SECOND + 50))
        .drain(A)
    ),
    "a consumer that did not poll meanwhile": lambda: (
        three().assign().poll(pos=0, at=(11 * SECOND, 11 * SECOND + 50)).drain(A)
    ),
    "an ordered producer's unknown send may land late": lambda: (
        Story()
        .producer(ordered=True)
        .send("w:0", status="info", at=(2, 8))
        .send("w:1", 0, at=(3, 9))
        .drain([(0, "w:1"), (1, "w:0")])
    ),
    "a pipelining producer promises no order": lambda: (
        Story().producer().send("w:0", 1, at=(2, 8)).send("w:1", 0, at=(3, 9)).drain([(0, "w:1"), (1, "w:0")])
    ),
    "two processes on one producer have no order between them": lambda: (
        Story()
        .producer(idempotent=True)
        .send("w:0", 1, at=(2, 8))
        .send("w:1", 0, at=(3, 9), p="v", producer="w")
        .drain([(0, "w:1"), (1, "w:0")])
    ),
    "a seek may go back": lambda: three().assign().poll(A).seek(0).poll(A).drain(A),
    "a seek may jump": lambda: three().assign().poll(A[:1]).seek(2).poll(A[2:]).drain(A),
    "a new assignment may go back": lambda: three().assign().poll(A).assign().poll(A).drain(A),
    "a rebalance may go back": lambda: three().assign().poll(A).rebalanced(1, "c", [TP]).poll(A[1:]).drain(A),
    "a rebalance in the middle of a poll": lambda: (
        three().assign().poll([A[2], A[0]], at=(40, 50)).rebalanced(1, "c", [TP], at=45).drain(A)
    ),
    "a rebalance in the middle of a poll leaves its position open": lambda: (
        three().assign().poll(A[:1], at=(40, 50)).rebalanced(1, "c", [TP], at=45).poll(A[:1], at=(60, 70)).drain(A)
    ),
    "polls of one process that overlap have no order": lambda: (
        three().assign().poll(A[:1], at=(40, 50)).poll(A[1:], at=(41, 51)).poll(A[:1], at=(60, 70)).drain(A)
    ),
    "a new client of the same name may go back": lambda: three().assign().poll(A).crash("c").poll(A).drain(A),
    "a poll of unknown outcome may have moved the client": lambda: (
        three().assign().poll(A[:1]).poll(status="info").poll(A[2:]).drain(A)
    ),
    "EARLIEST answers that overlap": lambda: (
        three().earliest(2, at=(20, 24)).earliest(1, at=(23, 26)).drain(A[2:], start=2)
    ),
    "a member commits a lower offset": lambda: three().drain(A).commit(2).committed(2).commit(1).committed(1),
    "a commit of unknown outcome may be read": lambda: three().drain(A).commit(1).commit(2, status="info").committed(2),
    "a commit of unknown outcome may come late": lambda: (
        three().drain(A).commit(1, status="info").commit(2).committed(2).committed(1)
    ),
    "commits that overlap": lambda: (
        three().drain(A).commit(1, at=(30, 40)).commit(2, at=(35, 45), member="n").committed(1)
    ),
    "nothing was committed yet": lambda: three().drain(A).committed(-1).commit(1).committed(1),
    "a commit beside the new generation": lambda: (
        three().drain(A).rebalanced(5, "m", [TP]).commit(1, generation=5, at=(60, 70)).rebalanced(6, "n", [TP])
    ),
    "a refused zombie": lambda: three().drain(A).rebalanced(6, "n", [TP]).commit(1, generation=5, status="fail"),
    "members reach epochs one by one": lambda: (
        three()
        .drain(A)
        .rebalanced(5, "m", [OTHER], per_member=True)
        .rebalanced(6, "n", [TP], per_member=True)
        .commit(1, generation=5, tp=OTHER)
    ),
    "a partition changes hands between generations": lambda: (
        three().drain(A).rebalanced(5, "m", [TP]).rebalanced(6, "n", [TP])
    ),
    "records fetched before a deletion": lambda: (
        Story().create("A").send("w:0", 0).assign().delete().poll([(0, "w:0")])
    ),
    "a topic that begins again at zero": lambda: (
        Story()
        .create("A")
        .send("w:0", 0)
        .assign()
        .poll([(0, "w:0")])
        .delete()
        .create("B")
        .send("w:1", 0)
        .assign()
        .poll([(0, "w:1")])
        .drain([(0, "w:1")])
    ),
    "a send beside the deletion may be in either topic": lambda: (
        Story()
        .create("A")
        .send("w:0", 0)
        .send("w:1", 0, at=(5, 60), p="x")
        .delete(at=(10, 20))
        .create("B", at=(30, 40))
        .drain([(0, "w:1")])
    ),
    "a deleted topic need not be read": lambda: (
        Story().create("A").send("w:0", 0).delete().send("w:1", 0, tp="u/0").drain([(0, "w:1")], tp="u/0")
    ),
    "a stuck client that was dropped": lambda: (
        Story()
        .send("w:0", status="none")
        .crash("w")
        .send("x:0", 0, p="x", at=(40 * SECOND, 40 * SECOND + 1))
        .drain([(0, "x:0")])
    ),
    "an idle process": lambda: (
        Story().send("w:0", 0).send("x:0", 1, p="x", at=(90 * SECOND, 90 * SECOND + 1)).drain([(0, "w:0"), (1, "x:0")])
    ),
    "a fault that lasts": lambda: (
        Story()
        .send("w:0", 0)
        .fault(start=True)
        .send("w:1", status="info", at=(10, 90 * SECOND))
        .fault(start=False)
        .drain([(0, "w:0")])
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_history_shows_its_anomaly_and_only_what_that_implies(name):
    """R-011, R-012, R-014, R-018, R-100, R-221."""
    story, expected = FAULTY[name]
    assert story().anomalies(Limits(retention=name not in STRICT)) == expected


@pytest.mark.parametrize("name", SOUND)
def test_a_near_miss_is_no_anomaly(name):
    """HC3, HC4."""
    assert SOUND[name]().anomalies() == set()
