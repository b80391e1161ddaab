"""The Postgres store as the contract suite needs it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql
from tests.waiting import STATEMENT_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits
from queue_operator.testing.store import half

# A store that is broken on purpose is waited for this long, once per test.
_CONNECT_TIMEOUT_S: Final = 3.0

_CLEAR: LiteralString = """
DELETE FROM ready; DELETE FROM lease; DELETE FROM final; DELETE FROM attempt; DELETE FROM job;
DELETE FROM transition; DELETE FROM dependency; DELETE FROM parent_result; DELETE FROM idempotency;
DELETE FROM job_event; DELETE FROM count_delta; DELETE FROM lane_count; DELETE FROM mirror_outbox;
DELETE FROM kind_count; DELETE FROM namespace_count; DELETE FROM lane_waiting;
DELETE FROM detached; DELETE FROM checkpoint; DELETE FROM spawned; DELETE FROM log_chunk;
DELETE FROM callback; DELETE FROM suspension; DELETE FROM pause; DELETE FROM arrival;
DELETE FROM roll_up; DELETE FROM roll_up_latency; DELETE FROM token_bucket;
DELETE FROM lane; DELETE FROM job_type; DELETE FROM namespace; DELETE FROM worker_session;
DELETE FROM webhook_batch; DELETE FROM webhook_message; DELETE FROM webhook_count;
DELETE FROM lost_worker; DELETE FROM lease_check; DELETE FROM progress; DELETE FROM session_beat;
UPDATE sweep SET swept_at = now(), resumed_at = NULL, kinds = '{}', marks = '{}', seen = NULL;
"""
_AGE: LiteralString = """
UPDATE lease SET expires_at = expires_at - s, deadline = deadline - s,
    cancel_requested_at = cancel_requested_at - s
    FROM make_interval(secs => %(seconds)s) s;
UPDATE progress SET at = at - make_interval(secs => %(seconds)s);
UPDATE lease_check SET look_at = look_at - make_interval(secs => %(seconds)s);
UPDATE final SET finalized_at = finalized_at - make_interval(secs => %(seconds)s);
UPDATE job SET created_at = created_at - make_interval(secs => %(seconds)s);
UPDATE attempt SET assigned_at = assigned_at - s, ended_at = ended_at - s,
    eligible_at = eligible_at - s
    FROM make_interval(secs => %(seconds)s) s;
UPDATE transition SET at = at - make_interval(secs => %(seconds)s);
UPDATE suspension SET changed_at = changed_at - make_interval(secs => %(seconds)s);
UPDATE webhook_batch SET ended_at = ended_at - make_interval(secs => %(seconds)s);
UPDATE webhook_message SET created_at = created_at - s, finalized_at = finalized_at - s,
    next_at = next_at - s, last_at = last_at - s
    FROM make_interval(secs => %(seconds)s) s;
UPDATE pause SET since = since - make_interval(secs => %(seconds)s);
UPDATE job_event SET at = at - make_interval(secs => %(seconds)s);
UPDATE sweep SET resumed_at = resumed_at - make_interval(secs => %(seconds)s),
    marks = ARRAY(SELECT m - make_interval(secs => %(seconds)s) FROM unnest(marks) AS m),
    swept_at = CASE WHEN %(outage)s THEN swept_at - make_interval(secs => %(seconds)s)
                    ELSE now() END;
"""
_AGE_PLACE: LiteralString = """
UPDATE {} SET created_at = created_at - s, order_time = order_time - s,
    eligible_at = eligible_at - s, changed_at = changed_at - s, assigned_at = assigned_at - s,
    started_at = started_at - s, last_retry_at = last_retry_at - s,
    failed_at = failed_at - s
    FROM make_interval(secs => %s) s
"""
_CUT: LiteralString = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_PLACES: LiteralString = """
SELECT job.id, (SELECT count(*) FROM ready WHERE ready.job_no = job.job_no)
             + (SELECT count(*) FROM lease WHERE lease.job_no = job.job_no)
             + (SELECT count(*) FROM final WHERE final.job_no = job.job_no) AS places
FROM job
"""
_ORPHANS: LiteralString = """
SELECT place, count(*) FROM (
    SELECT 'attempt' AS place, job_no FROM attempt
    UNION ALL SELECT 'transition', job_no FROM transition
    UNION ALL SELECT 'dependency', child_no FROM dependency
    UNION ALL SELECT 'parent_result', job_no FROM parent_result
    UNION ALL SELECT 'idempotency', job_no FROM idempotency
    UNION ALL SELECT 'spawned', child_no FROM spawned
    UNION ALL SELECT 'log_chunk', job_no FROM log_chunk
    UNION ALL SELECT 'callback', job_no FROM callback
    UNION ALL SELECT 'suspension', job_no FROM suspension
) left_over WHERE NOT EXISTS (SELECT FROM job WHERE job.job_no = left_over.job_no) GROUP BY place
UNION ALL
SELECT 'checkpoint', count(*) FROM checkpoint WHERE NOT EXISTS (
    SELECT FROM ready WHERE ready.job_no = checkpoint.job_no AND checkpointed
    UNION ALL SELECT FROM lease WHERE lease.job_no = checkpoint.job_no AND checkpointed
) HAVING count(*) > 0
"""
RECOUNT: LiteralString = """
WITH moving AS (
    SELECT lane_id, state, retry_count FROM ready
    UNION ALL SELECT lane_id, state, retry_count FROM lease
    UNION ALL SELECT lane_id, state, retry_count FROM final
), truth AS (
    SELECT lane_id, state, count(*) AS jobs FROM moving GROUP BY lane_id, state
), kept AS (
    SELECT lane_id, state, sum(jobs) AS jobs
    FROM (SELECT lane_id, told.state, told.jobs
          FROM lane_count CROSS JOIN LATERAL unnest(states, jobs) AS told(state, jobs)
          UNION ALL SELECT lane_id, state, jobs FROM count_delta) counted
    GROUP BY lane_id, state HAVING sum(jobs) <> 0
), by_lane AS (
    SELECT lane.namespace_id, lane.type_id, lane.priority, told.state, told.jobs
    FROM lane_count JOIN lane ON lane.id = lane_id
    CROSS JOIN LATERAL unnest(states, jobs) AS told(state, jobs)
), wrong AS (
    SELECT 'kind' AS what, namespace_id AS id FROM (
        SELECT namespace_id, type_id, priority, state, jobs FROM by_lane
        UNION ALL
        SELECT namespace_id, type_id, priority, told.state, -told.jobs
        FROM kind_count CROSS JOIN LATERAL unnest(states, jobs) AS told(state, jobs)
    ) parts GROUP BY namespace_id, type_id, priority, state HAVING sum(jobs) <> 0
    UNION ALL
    SELECT 'namespace', namespace_id FROM (
        SELECT namespace_id, state, jobs FROM by_lane
        UNION ALL
        SELECT namespace_id, told.state, -told.jobs
        FROM namespace_count CROSS JOIN LATERAL unnest(states, jobs) AS told(state, jobs)
        UNION ALL
        SELECT namespace_id, 'retries', retries FROM lane_count JOIN lane ON lane.id = lane_id
        UNION ALL SELECT namespace_id, 'retries', -retries FROM namespace_count
    ) parts GROUP BY namespace_id, state HAVING sum(jobs) <> 0
    UNION ALL
    SELECT 'blocked', namespace_id FROM (
        SELECT namespace_id, type_id, priority, blocked FROM kind_count
        UNION ALL
        SELECT lane.namespace_id, lane.type_id, lane.priority, told.blocked
        FROM count_delta told JOIN lane ON lane.id = told.lane_id
        UNION ALL
        SELECT lane.namespace_id, lane.type_id, lane.priority, -1
        FROM ready JOIN lane ON lane.id = ready.lane_id WHERE blocked
    ) parts GROUP BY namespace_id, type_id, priority HAVING sum(blocked) <> 0
    UNION ALL
    SELECT 'waiting', lane_id FROM (SELECT lane_id FROM lane_count WHERE waiting > 0) counted
    FULL JOIN lane_waiting listed USING (lane_id)
    WHERE counted IS NULL OR listed IS NULL
)
SELECT lane_id, state, truth.jobs, kept.jobs FROM truth FULL JOIN kept USING (lane_id, state)
WHERE truth.jobs IS DISTINCT FROM kept.jobs
UNION ALL
SELECT lane_id, 'retries', truth.retries, kept.retries
FROM (SELECT lane_id, sum(retry_count) AS retries FROM moving GROUP BY lane_id) truth
JOIN (SELECT lane_id, sum(retries) AS retries
      FROM (SELECT lane_id, retries FROM lane_count
            UNION ALL SELECT lane_id, retries FROM count_delta) counted
      GROUP BY lane_id) kept USING (lane_id)
WHERE truth.retries <> kept.retries
UNION ALL
SELECT id, what, NULL, NULL FROM wrong
"""
_MESSAGES: LiteralString = """
SELECT namespace, state, sum(messages) FROM (
    SELECT namespace, state, messages FROM webhook_count
    UNION ALL SELECT namespace, state, -1 FROM webhook_message
) counted GROUP BY namespace, state HAVING sum(messages) <> 0
"""


@dataclass
class PostgresStore:
    """A migrated database, emptied."""

    dsn: str
    admin: psycopg.AsyncConnection[tuple[Any, ...]]
    opened: list[PostgresBackend] = field(default_factory=list)
    broken: bool = False
    durable: bool = True

    @classmethod
    async def on(cls, dsn: str) -> "PostgresStore":
        admin = await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, options="-c search_path=queue_operator"
        )
        await admin.execute(_CLEAR)
        return cls(dsn, admin)

    async def open(
        self, *, limits: Limits = DEFAULT_LIMITS, rng: Callable[[], float] = half
    ) -> PostgresBackend:
        backend = await PostgresBackend.open(
            self.dsn,
            limits=limits,
            rng=rng,
            cancel_timeout_s=30.0,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            statement_timeout_s=STATEMENT_S,
        )
        self.opened.append(backend)
        return backend

    async def age(self, seconds: float, *, outage: bool = False) -> None:
        async with self.admin.transaction(), psycopg.AsyncClientCursor(self.admin) as cursor:
            await cursor.execute(_AGE, {"seconds": float(seconds), "outage": outage})
            for place in ("ready", "lease", "final"):
                statement = sql.SQL(_AGE_PLACE).format(sql.Identifier(place))
                await cursor.execute(statement, [float(seconds)])
        for backend in self.opened:
            # What was moved back lies elsewhere now than it was told to.
            backend._arrivals.lose()
            backend.webhooks._lose()

    async def break_down(self) -> None:
        await self._allow_connections(False)
        self.broken = True
        await self.admin.execute(_CUT)

    async def mend(self) -> None:
        await self._allow_connections(True)
        self.broken = False

    async def _allow_connections(self, allowed: bool) -> None:
        statement = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
        name, value = sql.Identifier(self.admin.info.dbname), sql.Literal(allowed)
        # Not possible from within.
        async with await psycopg.AsyncConnection.connect(
            self.dsn, dbname="postgres", autocommit=True
        ) as outside:
            await outside.execute(statement.format(name, value))

    async def faults(self) -> list[str]:
        places = await (await self.admin.execute(_PLACES)).fetchall()
        orphans = await (await self.admin.execute(_ORPHANS)).fetchall()
        counts = await (await self.admin.execute(RECOUNT)).fetchall()
        messages = await (await self.admin.execute(_MESSAGES)).fetchall()
        return [
            *(f"{n} messages of {space} too many are {state}" for space, state, n in messages),
            *(f"job {job_id} is in {n} places" for job_id, n in places if n != 1),
            *(f"{n} rows of {place} belong to no job" for place, n in orphans),
            *(
                f"lane {lane} {state}: {truth} jobs, counted {kept}"
                for lane, state, truth, kept in counts
            ),
        ]

    async def close(self) -> None:
        if self.broken:
            await self.mend()
        for backend in self.opened:
            await backend.close()
        await self.admin.close()
