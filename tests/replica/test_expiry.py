"""Q5: whose session an observer may propose to expire."""

from dray.replica.expiry import Observer

TTL = 15_000
BEAT = 5_000


def observer() -> Observer:
    return Observer(ttl_ns=TTL, beat_ns=BEAT)


def test_a_session_silent_through_a_ttl_of_own_beats_is_due():
    watch = observer()
    watch.heard(7, 3, 0)
    for now in range(0, TTL + 1, BEAT):
        assert watch.due() == []
        watch.own_entry_applied(now)
    assert watch.due() == [(7, 3)]


def test_an_entry_of_the_session_starts_the_count_anew():
    watch = observer()
    watch.heard(7, 3, 0)
    for now in range(0, TTL, BEAT):
        watch.own_entry_applied(now)
    watch.heard(7, 4, TTL)
    watch.own_entry_applied(TTL)
    assert watch.due() == []


def test_an_outage_of_the_log_expires_nobody():
    """R-049: without own beats there is no silence, however much time passes."""
    watch = observer()
    watch.heard(7, 3, 0)
    watch.own_entry_applied(0)
    watch.own_entry_applied(100 * TTL)  # back after the outage: one beat, not a hundred
    assert watch.due() == []


def test_a_paused_observer_counts_anew():
    """R-049: what it slept through says nothing about the others."""
    watch = observer()
    watch.heard(7, 3, 0)
    for now in (0, BEAT, 2 * BEAT):
        watch.own_entry_applied(now)
    watch.own_entry_applied(2 * BEAT + 10 * TTL)
    assert watch.due() == []


def test_a_busy_observer_makes_at_most_one_beat_per_interval():
    watch = observer()
    watch.heard(7, 3, 0)
    for now in range(0, BEAT * 2, 10):
        watch.own_entry_applied(now)
    assert watch.due() == []


def test_patience_lets_an_elder_go_first():
    watch = observer()
    watch.heard(7, 3, 0)
    for now in range(0, TTL + 1, BEAT):
        watch.own_entry_applied(now)
    assert watch.due(patience=1.5) == []
    for now in range(TTL + BEAT, TTL * 2, BEAT):
        watch.own_entry_applied(now)
    assert watch.due(patience=1.5) == [(7, 3)]


def test_beats_on_both_sides_of_a_short_outage_are_not_one_silence():
    """R-049: two beats, an outage shorter than two ttl, and a third beat expire nobody."""
    watch = observer()
    watch.heard(7, 3, 0)
    watch.own_entry_applied(0)
    watch.own_entry_applied(BEAT)
    watch.own_entry_applied(BEAT + TTL)
    assert watch.due() == []


def test_entries_between_beats_do_not_make_a_beat_late():
    """A busy observer counts on: the gap is measured from its last entry, not from its last beat."""
    watch = observer()
    watch.heard(7, 3, 0)
    for now in range(0, TTL + 2 * BEAT, BEAT - 1):
        watch.own_entry_applied(now)
    assert watch.due() == [(7, 3)]


def test_a_session_not_heard_for_two_beats_is_silent_and_its_next_entry_ends_that():
    watch = observer()
    watch.heard(7, 3, 0)
    for now in range(0, 2 * BEAT + 1, BEAT):
        watch.own_entry_applied(now)
    assert not watch.is_silent(7, 2 * BEAT)
    assert watch.is_silent(7, 2 * BEAT + 1)
    assert not watch.is_silent(8, 2 * BEAT + 1), "of whom nothing is known"
    watch.heard(7, 4, 2 * BEAT + 2)
    assert not watch.is_silent(7, 2 * BEAT + 3)


def test_who_is_not_heard_itself_calls_nobody_silent():
    """R-049: an outage of the log, or a pause of the observer, says nothing about the others."""
    watch = observer()
    assert not watch.is_silent(7, 0)
    watch.heard(7, 3, 0)
    assert not watch.is_silent(7, 10 * BEAT), "no own entry yet"
    watch.own_entry_applied(0)
    assert not watch.is_silent(7, 10 * BEAT)
    watch.own_entry_applied(10 * BEAT)  # back after the outage: the count begins here
    assert not watch.is_silent(7, 10 * BEAT + 1)
