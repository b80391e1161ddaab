"""What is drawn is drawn anew each time: by every process, every backend of one, and every job."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.conftest import migrated_database
from tests.programs import finish, started
from tests.waiting import together

from queue_operator.testing.clauses import proves

JOBS: Final = 5
DRAW: Final = """
import asyncio, json, sys
from queue_operator.api.naming import new_job_id
from queue_operator.backends.registry import open_backend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.retry import Backoff, BackoffStrategy

URL, ME = sys.argv[1:]
LONG = Backoff(BackoffStrategy.EXPONENTIAL, 3600.0, 3600.0, 1.0)

async def draw(space):
    backend = await open_backend(URL)
    jobs = [Job(id=new_job_id(), type="t", namespace=space, backoff=LONG) for _ in range(5)]
    await backend.enqueue_jobs(jobs)
    taken = []
    for limit in (3, 2):
        demand = Demand(assignee_id="w", limit=limit, namespace=space)
        taken += await backend.claim([demand], lease_ttl_s=600.0)
    told = []
    for one in taken:
        await backend.fail_job(one.job_id, "no", namespace=space, token=one.token)
        job = await backend.get_job(one.job_id, namespace=space)
        delay_s = (job.eligible_at - job.last_retry_at).total_seconds()
        # The first half of an id is the time.
        told.append([one.job_id[18:], one.token, delay_s])
    await backend.close()
    return told

async def main():
    print(json.dumps(await draw(ME + "-1") + await draw(ME + "-2")))

asyncio.run(main())
"""


async def drawn(url: str, name: str) -> list[tuple[str, str, float]]:
    """Ids, tokens and delays of the jobs of two backends in a process of their own."""
    async with started(sys.executable, "-c", DRAW, url, name) as process:
        return [tuple(one) for one in json.loads(await finish(process))]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        yield "memory://"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        admin_dsn = request.getfixturevalue("postgres_admin_dsn")
        with migrated_database(admin_dsn, "draws") as dsn:
            yield f"postgresql:///?{urlencode(conninfo_to_dict(dsn))}"


@proves("queue-semantics.Backoff.rule.4", "queue-semantics.Fencing.rule.2")
async def test_processes_backends_and_jobs_draw_for_themselves(url: str) -> None:
    first, second = await together([drawn(url, "a"), drawn(url, "b")])
    assert len(first) == len(second) == 2 * JOBS
    drawn_by_all = list(zip(*[*first, *second], strict=True))
    assert [len(set(values)) for values in drawn_by_all] == [4 * JOBS] * 3
    # From nothing to the whole delay, which is an hour.
    delays = drawn_by_all[2]
    assert max(delays) - min(delays) > 600.0
