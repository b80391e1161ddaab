"""What may delay the jobs of a dead worker, and what may not."""

from tests.chaos.bounds import SLACK_S, judge, outages_of
from tests.chaos.plan import Fault
from tests.chaos.troupe import TTL_S

from queue_operator.testing.history import History, Kind, Log, Takeover

STRICT_S = TTL_S + SLACK_S
LOOSE_S = 2 * TTL_S + SLACK_S


def taken(again_at: float) -> Takeover:
    return Takeover("job", "worker", 100.0, again_at, left_at=again_at)


def never(*, left_at: float | None, ended: bool) -> Takeover:
    return Takeover("job", "worker", 100.0, None, left_at, ended)


def test_where_only_workers_were_killed() -> None:
    assert judge(taken(100.0 + STRICT_S), [], []) == ""
    assert "worker" in judge(taken(100.1 + STRICT_S), [], [])


def test_a_job_that_nobody_ran_again_must_have_ended_and_in_time() -> None:
    assert judge(never(left_at=100.0 + STRICT_S, ended=True), [], []) == ""
    assert "ended" in judge(never(left_at=100.1 + STRICT_S, ended=True), [], [])
    assert "never" in judge(never(left_at=101.0, ended=False), [], [])
    assert "never" in judge(never(left_at=None, ended=False), [], [])
    assert never(left_at=101.0, ended=True).waited_s is None


def test_where_something_else_was_struck_as_well() -> None:
    others = [(101.0, 101.0)]
    assert judge(taken(100.0 + LOOSE_S), others, []) == ""
    assert judge(taken(100.1 + LOOSE_S), others, []) != ""
    # Long before, or only after the job ran again, it is no excuse.
    assert judge(taken(100.1 + STRICT_S), [(90.0, 90.0), (120.0, 120.0)], []) != ""


def test_time_in_which_nobody_can_run_anything_does_not_count() -> None:
    outages = [(102.0, 110.0), (112.0, 115.0)]
    assert judge(taken(115.0 + LOOSE_S), [], outages) == ""
    assert judge(taken(115.1 + LOOSE_S), [], outages) != ""


def test_an_outage_is_when_postgres_is_down_or_no_operator_reaches_it() -> None:
    log = Log("chaos")

    def struck(fault: Fault, target: int, since: float, until: float) -> None:
        log.write(Kind.FAULT, fault=fault.name, target=target, since=since, until=until)

    struck(Fault.RESTART_POSTGRES, 7, 10.0, 12.0)
    struck(Fault.KILL_OPERATOR, 0, 20.0, 25.0)
    struck(Fault.FREEZE_OPERATOR, 3, 23.0, 30.0)
    struck(Fault.KILL_OPERATOR, 1, 40.0, 45.0)
    struck(Fault.CUT_WORKER, 0, 41.0, 41.0)
    assert sorted(outages_of(History(log.records, {}))) == [(10.0, 12.0), (23.0, 25.0)]
