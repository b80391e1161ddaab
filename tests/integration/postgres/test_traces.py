"""Jobs from before traces are kept belong to none, and those that are copied in keep theirs."""

import psycopg
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.domain.job import Demand, Job

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_UP_TO_TRACES = [migration for migration in migrations() if migration.name <= "0017_traces"]
_BEFORE = """
ALTER TABLE queue_operator.job DROP COLUMN traceparent, DROP COLUMN tracestate;
CREATE TABLE public.later AS
    SELECT * FROM queue_operator.schema_migration WHERE name > '0017_traces';
DELETE FROM queue_operator.schema_migration WHERE name >= '0017_traces';
"""
_AFTERWARDS = """
INSERT INTO queue_operator.schema_migration SELECT * FROM public.later;
DROP TABLE public.later;
"""
"""What came later stays, and is applied already: it cannot be applied twice."""


async def _claimed(backend: PostgresBackend) -> dict[str, str]:
    demand = Demand(assignee_id="w", limit=100, types=frozenset({"old"}))
    claimed = await backend.claim([demand], lease_ttl_s=60.0)
    return {one.job_id: one.traceparent for one in claimed}


async def test_jobs_from_before_the_migration_belong_to_no_trace(own_dsn: str) -> None:
    names = [f"old-{n}" for n in range(3)]
    backend = await PostgresBackend.open(own_dsn)
    await backend.enqueue_jobs([Job(id=name, type="old") for name in names])
    await backend.close()
    with psycopg.connect(own_dsn, autocommit=True) as connection:
        connection.execute(_BEFORE)
        assert await migrate(own_dsn, shipped=_UP_TO_TRACES) == ["0017_traces"]
        connection.execute(_AFTERWARDS)
    backend = await PostgresBackend.open(own_dsn)
    try:
        assert (await backend.get_job(names[0])).traceparent == ""
        assert await _claimed(backend) == dict.fromkeys(names, "")
    finally:
        await backend.close()


async def test_what_is_not_given_is_not_written(backend: PostgresBackend, ask: Ask) -> None:
    jobs = [Job(id=f"new-{n}", type="new") for n in range(60)]
    await backend.enqueue_jobs(jobs)
    await backend.enqueue_jobs([Job(id="traced", type="new", traceparent=_PARENT)])
    rows = await ask("SELECT id, traceparent, tracestate FROM job WHERE id = 'new-0'")
    assert rows == [("new-0", None, None)]
    rows = await ask("SELECT id, traceparent, tracestate FROM job WHERE id = 'traced'")
    assert rows == [("traced", _PARENT, None)]
