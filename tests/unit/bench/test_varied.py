"""What the store of many jobs is made of, and what it is asked."""

from datetime import UTC, datetime

from bench.programs.sample import SAMPLE
from bench.programs.varied import RARE, searches, varied_job
from queue_operator.api.schemas import JobSearch
from queue_operator.domain.ordering import Priority
from queue_operator.domain.validation import Limits, check_job
from queue_operator.domain.views import Phase

NEWEST = datetime(2026, 1, 2, tzinfo=UTC)
SINGLE = {"types", "states", "priorities", "tags", "created_after", "created_before"}


def test_the_jobs_can_be_submitted_and_differ() -> None:
    jobs = [varied_job(number, b"data") for number in range(SAMPLE)]
    for job in jobs:
        check_job(job, Limits())
    assert sum(job.type == RARE for job in jobs) == 1
    assert {job.priority for job in jobs} == set(Priority)
    assert (
        0 < sum(bool(job.depends_on) for job in jobs) < sum(job.delay_s is not None for job in jobs)
    )
    lanes = {(job.type, job.priority, job.tags) for job in jobs}
    assert len(lanes) == 1_001


def test_every_filter_is_asked_for_alone() -> None:
    asked = searches(NEWEST, copies=10)
    for filters in asked.values():
        JobSearch.model_validate(filters)
    alone = [filters for filters in asked.values() if len(filters) == 1]
    assert {name for filters in alone for name in filters} == SINGLE | {"order", "updated_after"}
    assert {one["states"][0] for one in alone if "states" in one} >= set(Phase) - {Phase.FAILED}
