"""Which snapshots expire."""

from types import SimpleNamespace

import pytest

from dray.tables.snapshots import HOUR_MS, KEPT_MS, MOST, UNTHINNED, expired

NOW = 1_000 * 24 * HOUR_MS


def table(times, refs=(), last=None):
    """Snapshots in a row, number n at the n-th time; `last` is ours, the others are foreign."""
    snapshots = [
        SimpleNamespace(
            snapshot_id=number, timestamp_ms=time, parent_snapshot_id=number - 1 if number else None,
            summary=SimpleNamespace(additional_properties={"dray.commit-id": "mine"} if number == last else {}),
        )
        for number, time in enumerate(times)
    ]  # fmt: skip
    return SimpleNamespace(
        snapshots=snapshots,
        refs={str(number): SimpleNamespace(snapshot_id=number) for number in (*refs, len(snapshots) - 1)},
        properties={} if last is None else {"dray.last-commit": "mine"},
        current_snapshot=lambda: snapshots[-1],
        snapshot_by_id=lambda number: snapshots[number],
    )


def test_snapshots_of_a_week_stay():
    times = [NOW - KEPT_MS - 1, NOW - KEPT_MS, NOW - 1, NOW]
    assert expired(table(times), NOW) == [0]


def test_heads_tags_and_our_last_one_stay_whatever_their_age():
    """TX1"""
    times = [0, 1, 2, 3]
    assert expired(table(times, refs=(1,), last=0), NOW) == [2]


@pytest.mark.parametrize("pause_ms", [1_000, 60_000, 600_000])
def test_of_too_many_the_older_ones_are_thinned_to_one_an_hour(pause_ms):
    """At most 500, a week back: the newest all of them, one an hour before."""
    count = min(3_000, KEPT_MS // pause_ms)
    times = [NOW - pause_ms * (count - at) for at in range(count)]
    gone = set(expired(table(times), NOW))
    kept = [number for number in range(count) if number not in gone]
    assert len(kept) <= MOST
    assert kept[-UNTHINNED:] == list(range(count - UNTHINNED, count))
    older = [times[number] // HOUR_MS for number in kept[:-UNTHINNED]]
    assert len(older) == len(set(older))
    assert set(older) == {time // HOUR_MS for time in times[: count - UNTHINNED]}
