"""Who leads what is a function of ids alone."""

import random
import subprocess
import sys
from collections import Counter

from dray.routing.leaders import bounded_leaders, rank, rendezvous

SEED = 20261117
SIXTEEN = {1: 3, 2: 1, 3: 3, 4: 1, 5: 1, 6: 2, 7: 3, 8: 3, 9: 1, 10: 1, 11: 1, 12: 2, 13: 2, 14: 2, 15: 3, 16: 2}
FOUR = {1: 3, 2: 1, 3: 2, 4: 1}


def test_leaders_are_those_of_a_fixed_vector() -> None:
    """R-005, R-069: what brokers of every build answer; a change moves every client of a cluster being upgraded."""
    assert bounded_leaders(range(1, 17), (1, 2, 3)) == SIXTEEN
    assert bounded_leaders(range(1, 5), (1, 2, 3)) == FOUR
    assert bounded_leaders(range(1), (1, 2, 3)) == {0: 3}


def test_two_processes_with_other_hash_seeds_agree() -> None:
    """R-005"""
    program = "from dray.routing.leaders import bounded_leaders as b; print(sorted(b(range(1, 17), (5, 9, 7)).items()))"
    told = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert told == {f"{sorted(bounded_leaders(range(1, 17), (9, 5, 7)).items())}\n".encode()}


def test_every_domain_has_a_leader_and_no_broker_more_than_its_share() -> None:
    """RG3, R-069"""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    for _ in range(200):
        domains, brokers = range(1, 1 + dice.randrange(1, 40)), dice.sample(range(1_000), dice.randrange(1, 12))
        led = Counter(bounded_leaders(domains, brokers).values())
        assert sum(led.values()) == len(domains)
        assert max(led.values()) <= -(-len(domains) // len(brokers))
        assert min(led[broker] for broker in brokers) >= len(domains) // len(brokers)


def test_a_broker_that_goes_moves_its_own_domains_and_few_others() -> None:
    """R-069: of sixty domains on ten brokers, the six of the one that went, and hardly any other."""
    domains, brokers = range(1, 61), tuple(range(1, 11))
    before = bounded_leaders(domains, brokers)
    moved = 0
    for gone in brokers:
        after = bounded_leaders(domains, [broker for broker in brokers if broker != gone])
        moved += sum(before[domain] not in (gone, after[domain]) for domain in domains)
    assert moved / len(brokers) < 0.2 * len(domains)


def test_nobody_leads_without_brokers() -> None:
    assert bounded_leaders(range(1, 5), ()) == {}
    assert rendezvous("group g", (), default=-1) == -1


def test_the_rank_of_the_first_choice_is_zero() -> None:
    brokers = (1, 2, 3, 4)
    first = rendezvous("group g", brokers, default=-1)
    assert sorted(rank("group g", brokers, one) for one in brokers) == [0, 1, 2, 3]
    assert rank("group g", brokers, first) == 0
