"""A cursor that nobody gave out is refused by its name, on every store."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from queue_operator.backends.protocol import FailureSearch, JobSearch
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.store import Contract

AT = "2026-01-01T00:00:00+00:00"
FORGED: dict[str, Any] = {
    "a number that is none": [AT, float("inf")],
    "not a number": [AT, float("nan")],
    "a number above all": [AT, 2**63],
    "a number below all": [AT, -(2**64)],
    "a number of 5,000 digits": [AT, "9" * 5000],
    "a fraction": [AT, 1.5],
    "a truth value": [AT, True],
    "a text": [AT, "1"],
    "a list": [AT, [1]],
    "an object": [AT, {}],
    "a time without a zone": ["2026-01-01T00:00:00", 1],
    "a time before all": ["0001-01-01T00:00:00+14:00", 1],
    "a time after all": ["9999-12-31T23:59:59-14:00", 1],
    "no time": [None, 1],
    "too much": [AT, 1, 1],
    "too little": [],
}


def forged(cursor: str, rest: list[Any]) -> str:
    """A cursor with the digest of this one."""
    padded = cursor + "=" * (-len(cursor) % 4)
    digest, *_ = json.loads(base64.urlsafe_b64decode(padded))
    return base64.urlsafe_b64encode(json.dumps([digest, *rest]).encode()).decode()


async def refused(backend: Contract, search: JobSearch | FailureSearch) -> str:
    asked = (
        backend.search_jobs(search)
        if isinstance(search, JobSearch)
        else backend.search_failures(search)
    )
    with pytest.raises(InvalidArgument) as raised:
        await asked
    return raised.value.field


@pytest.fixture
async def pages(backend: Contract) -> dict[JobSearch | FailureSearch, str]:
    """A search of each kind, and the cursor of its second page."""
    await backend.enqueue_jobs([Job(id=f"j{n}", type="t") for n in range(2)])
    for job in await backend.dequeue_jobs("w", (), 2):
        failed = Outcome(job.id, Event.EXHAUST, error=ErrorInfo("broken"), token=job.token)
        await backend.settle([failed])
    jobs, failures = JobSearch(limit=1), FailureSearch(limit=1)
    return {
        jobs: (await backend.search_jobs(jobs)).next_cursor,
        failures: (await backend.search_failures(failures)).next_cursor,
    }


@pytest.mark.parametrize("kind", FORGED)
async def test_a_forged_cursor_is_refused_by_its_name(
    backend: Contract, pages: dict[JobSearch | FailureSearch, str], kind: str
) -> None:
    for search, cursor in pages.items():
        wrong = replace(search, cursor=forged(cursor, FORGED[kind]))
        assert await refused(backend, wrong) == "cursor"


@pytest.mark.parametrize(
    "cursor", ["nonsense", "=", "====", "größe", "\x00", "\ud800", "W10", "e30", "MQ", "W" * 5000]
)
async def test_what_is_no_cursor_is_refused_by_its_name(backend: Contract, cursor: str) -> None:
    for search in (JobSearch(cursor=cursor), FailureSearch(cursor=cursor)):
        assert await refused(backend, search) == "cursor"
