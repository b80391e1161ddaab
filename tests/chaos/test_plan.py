"""Plans of faults: a seed stands for one, and a minute is long enough for all of them."""

from tests.chaos.plan import WORKER_ONLY, Fault, plan

SECONDS = 60.0


def test_a_seed_stands_for_one_plan() -> None:
    assert plan(1, SECONDS) == plan(1, SECONDS)
    assert plan(1, SECONDS) != plan(2, SECONDS)


def test_every_fault_strikes_in_a_minute() -> None:
    for seed in range(300):
        strikes = plan(seed, SECONDS)
        assert {strike.fault for strike in strikes} == set(Fault), f"seed {seed}"
        assert [strike.at_s for strike in strikes] == sorted(strike.at_s for strike in strikes)


def test_only_workers_are_struck_in_the_first_third() -> None:
    for seed in range(300):
        first = {strike.fault for strike in plan(seed, SECONDS) if strike.at_s < SECONDS / 3}
        assert first == set(WORKER_ONLY), f"seed {seed}"
