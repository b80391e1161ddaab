"""Any number of completed jobs, written by a few statements."""

from typing import LiteralString

import psycopg
from psycopg import sql

from queue_operator.backends.sql import render

_LANE: LiteralString = """
INSERT INTO namespace (name) VALUES (%(namespace)s) ON CONFLICT DO NOTHING;
INSERT INTO job_type (name) VALUES ('t') ON CONFLICT DO NOTHING;
INSERT INTO lane (namespace_id, type_id, priority, tags)
SELECT namespace.id, job_type.id, 'NORMAL', ARRAY[%(tag)s] FROM namespace, job_type
WHERE namespace.name = %(namespace)s AND job_type.name = 't' ON CONFLICT DO NOTHING;
"""
_JOBS: LiteralString = """
WITH mine AS (
    SELECT lane.id, lane.namespace_id FROM lane JOIN namespace ON namespace.id = namespace_id
    WHERE namespace.name = %(namespace)s AND tags = ARRAY[%(tag)s]
), made AS (
    SELECT %(first)s + n AS job_no,
           now() - %(age_s)s * interval '1 second'
               - CASE WHEN %(shuffled)s THEN (hashint8(n) & 1073741823) %% %(jobs)s
                      ELSE %(jobs)s - n END * interval '1 millisecond' AS at
    FROM generate_series(0, %(jobs)s - 1) AS n
), jobs AS (
    INSERT INTO job (job_no, namespace_id, id, lane_id, payload, content_type, created_at,
                     correlation_id)
    SELECT job_no, mine.namespace_id, gen_random_uuid()::text, mine.id, '{}', 'application/json',
           at, ''
    FROM made, mine ORDER BY job_no
), ended AS (
    INSERT INTO final (job_no, lane_id, namespace_id, state, order_time, created_at, eligible_at,
        attempt, lease_version, transition, retry_count, failure_count, token, assignee_id,
        worker_name, host, assigned_at, started_at, changed_at, mirrored, has_children,
        finalized_at, reason)
    SELECT job_no, mine.id, mine.namespace_id, {{COMPLETED}}, at, at, at, 1, 1, 3, 0, 0,
        gen_random_uuid(), 'w', '', '', at, at, at, false, false, at, 'COMPLETE'
    FROM made, mine ORDER BY job_no
)
INSERT INTO count_delta (lane_id, state, jobs, retries)
SELECT mine.id, {{COMPLETED}}, %(jobs)s, 0 FROM mine;
"""
_BLOCK = 1000
_RESERVE: LiteralString = """
SELECT max(block) FROM (SELECT nextval('job_no_block') AS block
                        FROM generate_series(0, %(jobs)s / 1000)) AS blocks
"""
# It takes the rows of a page from here, and the pages from the file.
_PRETEND: LiteralString = """
UPDATE pg_class SET reltuples = reltuples * %(times)s
WHERE relnamespace = 'queue_operator'::regnamespace AND reltuples > 0
  AND relname ~ '^(job|final|attempt|transition)(_|$)'
"""


def add_completed(
    dsn: str, jobs: int, *, namespace: str, tag: str, age_s: float = 3600.0, shuffled: bool = False
) -> None:
    """They carry one tag, and the last of them was made and done `age_s` seconds ago. `shuffled`,
    they lie in another order than that of time.
    """
    given = {
        "namespace": namespace,
        "tag": tag,
        "jobs": jobs,
        "age_s": age_s,
        "shuffled": shuffled,
    }
    with psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET search_path = queue_operator; SET synchronous_commit = off")
        connection.execute(_LANE, given)
        # Nobody else takes numbers meanwhile, so the blocks are one range.
        [last] = connection.execute(_RESERVE, given).fetchone() or [0]
        first = (last - jobs // _BLOCK) * _BLOCK
        connection.execute(render(_JOBS), {**given, "first": first})
        connection.commit()
        connection.autocommit = True
        for table in ("job", "final", "lane"):
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(table)))


def pretend(dsn: str, times: int) -> None:
    """Makes the planner believe that there are so many times as many jobs."""
    with psycopg.connect(dsn) as connection:
        connection.execute(_PRETEND, {"times": times})
