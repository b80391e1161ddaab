"""The checker finds bugs that are planted in the real queue, and nothing where there is none."""

import pytest
from tests.chaos.miniature import Miniature, miniature
from tests.chaos.planted import BUGS, Planted

from queue_operator.testing.history import check, summarise

SEEDS = range(6)
# Each bug shows with most seeds, but a bug that needs a rare moment may need another one.
TRIED = range(104, 109)


async def test_nothing_is_found_where_nothing_is_wrong() -> None:
    summaries = []
    for seed in SEEDS:
        history = await miniature(seed)
        assert [str(violation) for violation in check(history)] == [], f"seed {seed}"
        summaries.append(summarise(history))
    assert all(one.adds_up and one.unended + one.lost == 0 for one in summaries)
    # Where nothing strikes, that nothing is found says nothing.
    assert sum(one.attempts_lost for one in summaries) > len(SEEDS)
    assert sum(one.stale_refused for one in summaries) > len(SEEDS)
    assert sum(one.doubled for one in summaries) > 0
    assert sum(one.cancelled for one in summaries) > len(SEEDS)


@pytest.mark.parametrize("planted", BUGS, ids=str)
async def test_a_planted_bug_is_found(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    found = set()
    for seed in TRIED:
        found |= {violation.rule for violation in check(await miniature(seed))}
        if found & planted.found_by:
            return
    pytest.fail(f"{planted} was not found; what was: {sorted(found)}")


async def test_a_seed_stands_for_one_run() -> None:
    first, second = Miniature(1), Miniature(1)
    ways = []
    for mini in (first, second):
        history = await mini.run()
        ways.append([(one.at, one.kind, one.job_id) for one in history.records])
    assert ways[0] == ways[1]
