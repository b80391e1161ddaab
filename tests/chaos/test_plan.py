"""Plans of faults: a seed stands for one, and a minute is long enough for all of them."""

from itertools import pairwise

from tests.chaos.plan import API, WORKER_ONLY, Fault, only_api_s, plan

SECONDS = 60.0


def test_a_seed_stands_for_one_plan() -> None:
    assert plan(1, SECONDS) == plan(1, SECONDS)
    assert plan(1, SECONDS) != plan(2, SECONDS)


def test_every_fault_strikes_in_a_minute() -> None:
    for seed in range(300):
        strikes = plan(seed, SECONDS)
        assert {strike.fault for strike in strikes} == set(Fault), f"seed {seed}"
        assert [strike.at_s for strike in strikes] == sorted(strike.at_s for strike in strikes)


def test_at_first_only_the_api_server_fails_and_only_one_way_at_a_time() -> None:
    for seed in range(300):
        strikes = plan(seed, SECONDS)
        first = [strike for strike in strikes if strike.at_s < only_api_s(SECONDS)]
        assert {strike.fault for strike in first} <= set(API), f"seed {seed}"
        failing = [strike for strike in strikes if strike.fault in API]
        assert all(
            one.at_s + one.lasts_s < following.at_s for one, following in pairwise(failing)
        ), f"seed {seed}"


def test_until_a_third_is_over_workers_are_struck_as_well() -> None:
    for seed in range(300):
        struck = {strike.fault for strike in plan(seed, SECONDS) if strike.at_s < SECONDS / 3}
        assert struck - set(API) == set(WORKER_ONLY), f"seed {seed}"


def test_the_api_server_is_away_for_half_a_minute_of_five() -> None:
    away = [strike.lasts_s for strike in plan(1, 300.0) if strike.fault is Fault.API_AWAY]
    assert away
    assert all(25.0 <= seconds <= 37.5 for seconds in away)
