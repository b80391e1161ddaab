"""A million jobs of every state, written by a few statements in well under a minute."""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from queue_operator.backends.postgres import migrate
from queue_operator.backends.postgres.counts import FOLD
from queue_operator.backends.sql import render

JOBS = 1_000_000
BIG = "big"
SOLO = "solo"
"""A namespace whose 50,000 waiting jobs are all in one lane."""
RARE = "rare"
"""A tag that twenty ended and twenty waiting jobs carry."""

# The older a job, the likelier it has ended. 200 lanes, and which one has nothing to do with
# the state.
_LANES: LiteralString = """
INSERT INTO namespace (name) VALUES ('big'), ('solo');
INSERT INTO job_type (name) SELECT 'type-' || n FROM generate_series(0, 9) AS n;
INSERT INTO lane (namespace_id, type_id, priority, tags)
SELECT namespace.id, job_type.id, priority, tags
FROM namespace, (SELECT * FROM job_type ORDER BY id) AS job_type,
    (VALUES (1, 'NORMAL'), (2, 'HIGH'), (3, 'LOW'), (4, 'BULK'), (5, 'CRITICAL'))
        AS p(place, priority),
    (VALUES (1, '{}'::text[]), (2, '{eu}'), (3, '{us}'), (4, '{eu,gpu}')) AS t(number, tags)
WHERE namespace.name = 'big' ORDER BY job_type.id, place, number;
INSERT INTO lane (namespace_id, type_id, priority, tags)
SELECT namespace.id, job_type.id, 'NORMAL', tags FROM namespace, job_type,
    (VALUES ('solo', '{}'::text[]), ('big', '{rare}')) AS l(name, tags)
WHERE namespace.name = l.name AND job_type.name = 'type-0' ORDER BY namespace.name DESC;
SELECT setval('job_no_block', 100000);
"""
# No temporary table: its schema would be new, and that makes the server forget cached plans.
# What each state's jobs went through: attempts, transitions, and the event of the last one
# where the history has a row for it (as an attempt, as a transition).
_GIVEN: LiteralString = """
CREATE UNLOGGED TABLE given AS WITH past AS (SELECT * FROM (VALUES
    ({{INITIAL_PENDING}}, 0, 1, NULL, NULL, NULL),
    ({{FAILED_RETRY}}, 1, 3, {{RUNNING}}, 'FAIL', NULL),
    ({{UNKNOWN_RETRY}}, 1, 3, {{RUNNING}}, 'LOSE', 'LOSE'),
    ({{RUNNING}}, 1, 2, NULL, NULL, NULL),
    ({{CANCELLING}}, 1, 3, {{RUNNING}}, NULL, 'CANCEL'),
    ({{COMPLETED}}, 1, 3, NULL, NULL, NULL),
    ({{DEAD_LETTER}}, 1, 3, {{RUNNING}}, 'EXHAUST', 'EXHAUST'),
    ({{STOPPED}}, 1, 3, {{RUNNING}}, 'STOP', NULL),
    ({{UNSCHEDULED}}, 0, 2, {{INITIAL_PENDING}}, NULL, 'CANCEL'),
    ({{UNKNOWN_STOPPED}}, 1, 3, {{RUNNING}}, 'MARK_UNKNOWN_STOPPED', 'MARK_UNKNOWN_STOPPED')
) AS p(state, attempts, transitions, before, ended_by, moved_by))
SELECT numbered.*, past.attempts, past.transitions, before, ended_by, moved_by,
    CASE WHEN attempts > 0 THEN gen_random_uuid() END AS token,
    created_at - CASE lane.priority WHEN 'CRITICAL' THEN interval '1 day'
        WHEN 'HIGH' THEN interval '1 hour' WHEN 'LOW' THEN interval '-1 hour'
        WHEN 'BULK' THEN interval '-1 day' ELSE interval '0' END AS order_time,
    CASE WHEN state IN ({{INITIAL_PENDING}}) THEN created_at
        ELSE created_at + interval '1 minute' END AS changed_at,
    CASE WHEN attempts > 0 THEN created_at + interval '1 second' END AS assigned_at
FROM (
    SELECT n AS job_no, 'job-' || lpad(n::text, 8, '0') AS id,
        CASE WHEN n > %(jobs)s - 20 OR n BETWEEN %(jobs)s * 0.4 + 1 AND %(jobs)s * 0.4 + 20
                THEN (SELECT id FROM lane WHERE tags = '{rare}')
            WHEN n > %(jobs)s * 0.95 THEN (SELECT id FROM lane WHERE namespace_id =
                (SELECT id FROM namespace WHERE name = 'solo'))
            ELSE (SELECT min(id) FROM lane) + (hashint8(n) & 1073741823) %% 200 END AS lane_id,
        now() - (%(jobs)s - n + 1) * interval '2 seconds' AS created_at,
        CASE WHEN n > %(jobs)s * 0.95 THEN {{INITIAL_PENDING}}
            WHEN n > %(jobs)s * 0.805 THEN
                CASE WHEN n %% 10 = 1 THEN {{FAILED_RETRY}}
                    WHEN n %% 100 = 2 THEN {{UNKNOWN_RETRY}} ELSE {{INITIAL_PENDING}} END
            WHEN n > %(jobs)s * 0.8 THEN
                CASE WHEN n %% 50 = 0 THEN {{CANCELLING}} ELSE {{RUNNING}} END
            WHEN n %% 100 < 88 THEN {{COMPLETED}} WHEN n %% 100 < 93 THEN {{DEAD_LETTER}}
            WHEN n %% 100 < 97 THEN {{STOPPED}} WHEN n %% 100 < 99 THEN {{UNSCHEDULED}}
            ELSE {{UNKNOWN_STOPPED}} END AS state,
        n BETWEEN %(jobs)s * 0.805 AND %(jobs)s * 0.95 AND n %% 10 = 0 AS delayed,
        n BETWEEN %(jobs)s * 0.805 AND %(jobs)s * 0.95 AND n %% 50 = 7 AS blocked
    FROM generate_series(1, %(jobs)s) AS n
) AS numbered JOIN past USING (state) JOIN lane ON lane.id = lane_id;
"""
_JOBS: LiteralString = """
INSERT INTO job (job_no, namespace_id, id, lane_id, payload, content_type, created_at,
    correlation_id, dependency_mode)
SELECT job_no, namespace_id, given.id, lane_id, '\\x7b7d', 'application/json', created_at, '',
    CASE WHEN blocked THEN 'AFTER' END
FROM given JOIN lane ON lane.id = lane_id ORDER BY job_no;
"""
_MOVING: LiteralString = """
    job_no, lane_id, state, order_time, created_at, eligible_at, attempt, lease_version, transition,
    retry_count, failure_count, max_attempts, token, assigned_at, started_at, assignee_id,
    worker_name, host, changed_at, mirrored, has_children, error"""
_MOVED: LiteralString = """
    job_no, lane_id, state, order_time, created_at,
    CASE WHEN delayed THEN now() + (job_no %% 7200 - 600) * interval '1 second'
        ELSE created_at END,
    attempts, attempts, transitions, (job_no %% 3)::int, 0, 4, token, assigned_at, assigned_at,
    CASE WHEN attempts > 0 THEN 'session-' || job_no %% 100 ELSE '' END, '', '',
    changed_at, false, false,
    CASE WHEN state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) THEN jsonb_build_object(
        'message', 'no route', 'category',
        CASE WHEN job_no %% 4 = 0 THEN 'PERMANENT' ELSE 'TEMPORARY' END,
        'code', 'E' || job_no %% 7, 'stack_trace', '', 'context', '{}'::jsonb) END"""
_CLASSIFIED: LiteralString = """
    CASE WHEN state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) THEN
        CASE WHEN job_no %% 4 = 0 THEN 'PERMANENT' ELSE 'TEMPORARY' END END,
    CASE WHEN state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) THEN 'E' || job_no %% 7 END,
    CASE WHEN state IN ({{DEAD_LETTER}}, {{FAILED_RETRY}}) THEN changed_at END"""
_WHERE_THEY_ARE: LiteralString = f"""
INSERT INTO ready ({_MOVING}, error_category, error_code, failed_at, due, blocked)
SELECT {_MOVED}, {_CLASSIFIED}, NOT (delayed OR blocked), blocked
FROM given WHERE state IN ({{{{eligible}}}}) ORDER BY job_no;
INSERT INTO lease ({_MOVING}, expires_at, cancel_requested_at)
SELECT {_MOVED}, now() + interval '1 hour',
    CASE WHEN state = {{{{CANCELLING}}}} THEN now() END
FROM given WHERE state IN ({{{{slot_holding}}}}) ORDER BY job_no;
INSERT INTO lease_check (kind, look_at, leases, assignees)
SELECT 'CLAIM', expires_at, array_agg((job_no << 16) | lease_version ORDER BY job_no),
    ARRAY[hashtext(assignee_id)]
FROM lease JOIN given USING (job_no) GROUP BY expires_at, assignee_id, job_no / 1000;
INSERT INTO lease_check (kind, look_at, leases)
SELECT 'CANCEL', cancel_requested_at, array_agg((job_no << 16) | lease_version)
FROM lease JOIN given USING (job_no) WHERE lease.state = {{{{CANCELLING}}}}
GROUP BY cancel_requested_at;
INSERT INTO final ({_MOVING}, error_category, error_code, failed_at, finalized_at, reason,
    result, result_content_type, namespace_id)
SELECT {_MOVED}, {_CLASSIFIED}, changed_at, 'test', '\\x7b7d', 'application/json',
    (SELECT namespace_id FROM lane WHERE lane.id = given.lane_id)
FROM given WHERE state IN ({{{{terminal}}}}) ORDER BY job_no;
"""
_THE_REST: LiteralString = """
INSERT INTO attempt (job_no, version, token, number, event, from_state, state, assigned_at,
    ended_at, assignee_id, worker_name, host)
SELECT job_no, 1, token, 1, ended_by, before, state, assigned_at,
    changed_at, '', '', ''
FROM given WHERE ended_by IS NOT NULL ORDER BY job_no;
INSERT INTO transition (job_no, number, event, from_state, to_state, at, reason)
SELECT job_no, transitions, moved_by, before, state, changed_at, 'test'
FROM given WHERE moved_by IS NOT NULL ORDER BY job_no;
INSERT INTO dependency (parent_no, child_no, place, parent_id)
SELECT job_no - 7, job_no, 0, 'job-' || lpad((job_no - 7)::text, 8, '0')
FROM given WHERE blocked ORDER BY job_no;
UPDATE ready SET has_children = true WHERE job_no IN (SELECT parent_no FROM dependency);
INSERT INTO arrival (lane_ids, firsts, first_nos, lasts, last_nos, due_at)
SELECT array_agg(lane_id), array_agg(first), array_agg(0), array_agg(last),
    array_agg(10 * %(jobs)s), now() - interval '1 day'
FROM (SELECT lane_id, min(order_time) AS first, max(order_time) AS last FROM ready
    WHERE due GROUP BY lane_id) AS waiting HAVING count(*) > 0;
INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)
SELECT lane_id, state, count(*), sum(job_no %% 3), count(*) FILTER (WHERE blocked)
FROM given GROUP BY lane_id, state;
DROP TABLE given;
"""


@contextmanager
def database_with(jobs: int, admin_dsn: str) -> Iterator[str]:
    """The address of a database with all migrations and as many jobs; dropped at the end."""
    name = f"million_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            address = make_conninfo(admin_dsn, dbname=name)
            asyncio.run(migrate(address))
            fill(address, jobs)
            yield address
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def fill(dsn: str, jobs: int = JOBS) -> None:
    """Into an empty database with all migrations; the statistics are then up to date."""
    add_lanes(dsn)
    add_jobs(dsn, jobs)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def add_lanes(dsn: str) -> None:
    _run(dsn, [_LANES])


def add_jobs(dsn: str, jobs: int) -> None:
    """The planner is told nothing of them."""
    _run(dsn, [_GIVEN, _JOBS, _WHERE_THEY_ARE, _THE_REST, FOLD], jobs=jobs, limit=1_000_000)


def _run(dsn: str, scripts: Sequence[LiteralString], **parameters: int) -> None:
    # Many statements in one go take their parameters on this side only.
    with psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET search_path = queue_operator; SET work_mem = '64MB'; SET jit = off")
        connection.execute("SET synchronous_commit = off")
        for script in scripts:
            connection.execute(render(script), parameters or None)
