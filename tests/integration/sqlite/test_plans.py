"""Each statement finds what it looks for through an index."""

import json
import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

import pytest

from queue_operator.backends.sql import load
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.job import Job
from queue_operator.testing.clauses import proves
from queue_operator.testing.sqlite import SqliteStore

PACKAGE = "queue_operator.backends.sqlite"
CONDITION = load(PACKAGE, "search_condition")
PLANS = {
    "became_due": ["SEARCH job USING INDEX job_due (eligible_at>? AND eligible_at<?)"],
    "children": [
        "SEARCH edge USING PRIMARY KEY (parent=?)",
        "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)",
    ],
    "ahead": ["SEARCH job USING INDEX job_claim (namespace=? AND place<?)"],
    "claimable": [
        "SEARCH job USING INDEX job_claim (namespace=?)",
        "SEARCH pause USING PRIMARY KEY (namespace=? AND type=?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "close_sessions": ["SEARCH session USING PRIMARY KEY (session_id=?)"],
    "completed": ["SEARCH job USING INDEX job_completed (finalized_at>? AND finalized_at<?)"],
    "counts": ["SEARCH job USING COVERING INDEX job_count (namespace=?)"],
    "counts_tagged": [
        "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH job_tag USING PRIMARY KEY (namespace=? AND tag=?)",
    ],
    "depth_jobs": ["SCAN job USING COVERING INDEX job_count"],
    "depth_oldest": ["SEARCH job USING INDEX job_due (eligible_at<?)"],
    "failure_totals": [
        "SEARCH job USING INDEX job_failed (namespace=? AND failed_at>? AND failed_at<?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "failures": [
        "SEARCH job USING INDEX job_failed (namespace=? AND failed_at>? AND failed_at<?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "find_again": [
        "SEARCH lost_worker USING COVERING INDEX lost_worker_name (namespace=? AND worker_name=?)"
    ],
    "get": ["SEARCH job USING INDEX sqlite_autoindex_job_1 (namespace=? AND id=?)"],
    "glimpse": [
        "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=?)",
    ],
    "leased": ["SCAN job USING INDEX job_leased"],
    "list_sessions": ["SCAN session"],
    "log_forget": [
        "SEARCH log_line USING PRIMARY KEY (number=?)",
        "SEARCH log_line USING PRIMARY KEY (number=?)",
    ],
    "log_prune": [
        "SEARCH log_line USING PRIMARY KEY (number=? AND version=? AND line<?)",
        "SEARCH log_line USING PRIMARY KEY (number=? AND version=?)",
    ],
    "log_read": [
        "SEARCH log_line USING PRIMARY KEY (number=? AND (version,line)>(?,?) AND version<?)"
    ],
    "lost_workers": ["SEARCH lost_worker USING INDEX lost_worker_name (namespace=?)"],
    "message_counts": ["SCAN message USING COVERING INDEX message_listed"],
    "message_due": ["SEARCH message USING INDEX message_due (next_at<?)"],
    "message_ended": ["SEARCH message USING INDEX message_ended (state=? AND last_at<?)"],
    "message_find": ["SEARCH message USING INTEGER PRIMARY KEY (rowid=?)"],
    "message_listed": [
        "SEARCH message USING INDEX message_listed (namespace=? AND state=? AND number<?)"
    ],
    "message_of_job": ["SEARCH message USING INDEX message_by_job (job_id=? AND number<?)"],
    "message_oldest": ["SEARCH message USING INDEX message_listed (namespace=? AND state=?)"],
    "named": ["SEARCH job USING INDEX sqlite_autoindex_job_1 (namespace=? AND id=?)"],
    "named_numbers": [
        "SEARCH job USING COVERING INDEX sqlite_autoindex_job_1 (namespace=? AND id=?)"
    ],
    "numbered": ["SEARCH job USING INTEGER PRIMARY KEY (rowid=?)"],
    "prune_lost": ["SCAN lost_worker"],
    "prune_sessions": ["SCAN session"],
    "search_count": [
        "SEARCH job USING INDEX job_updated (namespace=? AND updated_at>? AND updated_at<?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "search_created_asc": [
        "SEARCH job USING INDEX job_created (namespace=? AND created_at>? AND created_at<?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "search_created_desc": [
        "SEARCH job USING INDEX job_created (namespace=? AND created_at>? AND created_at<?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "search_updated_desc": [
        "SEARCH job USING INDEX job_updated (namespace=? AND updated_at>? AND updated_at<?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "standing": ["SEARCH job USING COVERING INDEX job_standing (namespace=?)"],
    "store": ["SEARCH job USING INTEGER PRIMARY KEY (rowid=?)"],
    "tagged": [
        "SEARCH job USING INDEX job_standing (namespace=?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
    ],
    "tagged_ended": [
        "SEARCH job_of_tag USING PRIMARY KEY (namespace=? AND tag=? AND number>?)",
        "SEARCH job_tag USING COVERING INDEX job_tag_by_job (number=? AND tag=?)",
        "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)",
    ],
    "tally_forget": ["SEARCH tally USING COVERING INDEX tally_by_age (span_s=? AND begins_at<?)"],
    "tally_get": [
        "SEARCH tally USING PRIMARY KEY"
        " (namespace=? AND span_s=? AND begins_at=? AND type=? AND priority=?)"
    ],
    "tally_within": [
        "SEARCH tally USING PRIMARY KEY (namespace=? AND span_s=? AND begins_at>? AND begins_at<?)"
    ],
    "used_up": ["SEARCH job USING INDEX job_used_up (eligible_at<?)"],
}
# Sorting what was found is fine where it is all used, and not where a limit cuts it.
UNSORTED = {"claimable", "search_created_asc", "search_created_desc", "search_updated_desc"}
INSERTS = {
    "add",
    "announce",
    "bucket_keep",
    "lose_session",
    "message_keep",
    "open_session",
    "put_pause",
    "tally_keep",
}
LISTS = {
    "types",
    "states",
    "seen_states",
    "priorities",
    "categories",
    "tags",
    "ids",
    "numbers",
    "names",
}


def names() -> Iterator[str]:
    for file in (files(PACKAGE) / "queries").iterdir():
        yield file.name.removesuffix(".sql")


def test_every_statement_has_a_plan_here() -> None:
    assert set(names()) - {"search_condition"} == set(PLANS) | INSERTS


@proves(
    "backend-api.DequeueJobs.must.11",
    "backend-api.ImplementationGuidelines.must.4",
    "backend-api.ImplementationGuidelines.must.5",
    "backend-api.ImplementationGuidelines.must.6",
    "backend-api.ImplementationGuidelines.must.8",
)
@pytest.mark.parametrize("name", sorted(PLANS))
async def test_plan(name: str, backend: SqliteBackend, store: SqliteStore) -> None:
    await backend.enqueue_job(Job(id="a", type="t", tags=frozenset({"x"})))
    assert _tables(_plan(store, name)) == PLANS[name]


@pytest.mark.parametrize("name", sorted(UNSORTED))
async def test_a_page_is_read_in_its_order(
    name: str, backend: SqliteBackend, store: SqliteStore
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    assert [step for step in _plan(store, name) if "ORDER BY" in step] == []


def _plan(store: SqliteStore, name: str) -> list[str]:
    statement = load(PACKAGE, name).replace("{condition}", CONDITION)
    parameters = {
        word: json.dumps(["x"]) if word in LISTS else 1 for word in re.findall(r":(\w+)", statement)
    }
    with sqlite3.connect(store.path) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    connection.close()
    return [step for *_, step in rows]


def _tables(plan: list[str]) -> list[str]:
    """Looks at stored rows, not at the parameters or at what another step gives."""
    looks = (step for step in plan if step.startswith(("SCAN", "SEARCH")))
    tables = "job|edge|session|lost_worker|log_line|message|pause|tally"
    return [step for step in looks if re.match(rf"\w+ ({tables})", step)]
