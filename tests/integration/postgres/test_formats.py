"""The formats that others read: columns, types, and one row of each kind, as they are frozen in
`tests/vectors/event_log.json` and told in `docs/reference/event-log.md`.

Whoever changes one raises EVENT_SCHEMA_VERSION, writes the page, and then the file.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from psycopg.rows import dict_row
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.protocol import EVENT_SCHEMA_VERSION
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import TARGET, Event, JobState, sources
from queue_operator.testing.driving import a_job, happens, job_in, running

ROOT = Path(__file__).resolve().parents[3]
FROZEN = json.loads((ROOT / "tests" / "vectors" / "event_log.json").read_text())
PAGE = (ROOT / "docs" / "reference" / "event-log.md").read_text()
TABLES = ("job_event", "attempt", "transition")
# What differs from run to run: shown by its kind.
_MASKS = {
    "seq": "number",
    "xid": "transaction id",
    "at": "time",
    "job_no": "job number",
    "job_nos": ["job number"],
    "ids": ["job id"],
    "wait_us": ["microseconds"],
    "run_us": ["microseconds"],
    "lane_ids": ["lane number"],
    "token": "uuid",
    "assigned_at": "time",
    "ended_at": "time",
    "eligible_at": "time",
}


async def columns(ask: Ask, table: str) -> dict[str, str]:
    rows = await ask(
        "SELECT attname, format_type(atttypid, atttypmod) || CASE WHEN attnotnull"
        " THEN ' NOT NULL' ELSE '' END FROM pg_attribute WHERE attrelid = %s::regclass"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        table,
    )
    return dict(rows)


async def newest(pool: Pool, table: str, order: str) -> dict[str, Any]:
    """The last row, without what is NULL."""
    async with borrowed(pool) as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"SELECT * FROM {table} ORDER BY {order} DESC LIMIT 1")
        row = await cursor.fetchone()
    assert row is not None
    return {name: _shown(name, value) for name, value in row.items() if value is not None}


def _shown(name: str, value: Any) -> Any:
    mask = _MASKS.get(name)
    if mask is None:
        return value
    return mask * len(value) if isinstance(mask, list) else mask


@pytest.mark.parametrize("table", TABLES)
async def test_the_columns_are_the_frozen_ones(ask: Ask, table: str) -> None:
    assert await columns(ask, table) == FROZEN["columns"][table]


async def test_a_submission_is_told_as_frozen(backend: PostgresBackend, pool: Pool) -> None:
    jobs = [
        Job(id=a_job().id, type="mail", tags=frozenset("ba"), correlation_id="c"),
        Job(id=a_job().id, type="mail", priority=Priority.HIGH),
        Job(id=a_job().id, type="mail", tags=frozenset("ab")),
    ]
    await backend.enqueue_jobs(jobs)
    assert await newest(pool, "job_event", "seq") == FROZEN["job_event"]["SUBMIT"]


async def test_a_deletion_is_told_as_frozen(backend: PostgresBackend, pool: Pool) -> None:
    job, _ = await job_in(backend, JobState.DEAD_LETTER)
    await backend.delete_jobs([], [job.id])
    assert await newest(pool, "job_event", "seq") == FROZEN["job_event"]["DELETE"]


@pytest.mark.parametrize("event", Event)
async def test_an_event_is_told_as_frozen(
    backend: PostgresBackend, pool: Pool, event: Event
) -> None:
    job, token = await job_in(backend, sources(event)[0])
    assert await happens(backend, job, event, token)
    assert await newest(pool, "job_event", "seq") == FROZEN["job_event"][event]


async def test_an_attempt_is_stored_as_frozen(backend: PostgresBackend, pool: Pool) -> None:
    job, token = await running(backend)
    assert await happens(backend, job, Event.EXHAUST, token)
    assert await newest(pool, "attempt", "job_no") == FROZEN["attempt"]


async def test_a_transition_is_stored_as_frozen(backend: PostgresBackend, pool: Pool) -> None:
    job, _ = await running(backend)
    await backend.cancel_jobs([], [job.id], reason="not needed")
    assert await newest(pool, "transition", "job_no") == FROZEN["transition"]


def test_every_kind_of_event_is_frozen() -> None:
    assert set(FROZEN["job_event"]) == {"SUBMIT", "DELETE", *(event for event, _ in TARGET)}
    assert {row["schema_version"] for row in FROZEN["job_event"].values()} == {EVENT_SCHEMA_VERSION}


@pytest.mark.parametrize("table", TABLES)
def test_the_page_tells_of_every_column(table: str) -> None:
    section = PAGE.partition(f"## `{table}`")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
    frozen = FROZEN["columns"][table]
    assert [name for name, _ in told] == list(frozen)
    assert [kind.strip() for _, kind in told] == [
        kind.removesuffix(" NOT NULL") for kind in frozen.values()
    ]
    assert f"version {EVENT_SCHEMA_VERSION}" in PAGE
