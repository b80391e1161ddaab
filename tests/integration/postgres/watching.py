"""The plans of whatever statements a backend runs, as the server really ran them.

The server tells them itself (auto_explain), so a test needs no list of statements and their
parameters, and none can be forgotten.
"""

import json
from collections.abc import AsyncIterator, Iterator, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg.conninfo import make_conninfo
from psycopg.errors import Diagnostic

from queue_operator.backends.postgres import PostgresBackend

_SETTINGS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_triggers": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One statement as it ran."""

    text: str
    nodes: list[dict[str, Any]]

    @property
    def scans(self) -> list[dict[str, Any]]:
        return [node for node in self.nodes if "Relation Name" in node and "Scan" in _type(node)]

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    @property
    def whole_tables(self) -> set[str]:
        """Tables that were read from end to end, by the table itself or by an index."""
        return {node["Relation Name"] for node in self.scans if _reads_all(node)}

    @property
    def rows(self) -> int:
        """How many rows were looked at, those included that a filter then threw away."""
        return sum(_rows(node) for node in self.scans)

    @property
    def pages(self) -> int:
        root = self.nodes[-1]
        return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])


@dataclass(slots=True)
class Watched:
    """What has been run since the last `clear`."""

    plans: list[Plan] = field(default_factory=list)

    def clear(self) -> None:
        self.plans.clear()

    @property
    def rows(self) -> int:
        return sum(plan.rows for plan in self.plans)

    @property
    def pages(self) -> int:
        return sum(plan.pages for plan in self.plans)

    @property
    def indexes(self) -> set[str]:
        return {index for plan in self.plans for index in plan.indexes}

    @property
    def joins(self) -> set[str]:
        nodes = [node for plan in self.plans for node in plan.nodes if "Join Type" in node]
        return {_type(node) for node in nodes}

    @property
    def whole_tables(self) -> set[str]:
        return {table for plan in self.plans for table in plan.whole_tables}

    def __str__(self) -> str:
        return "\n\n".join(
            f"{_title(plan.text)}\n{_outline(plan.nodes[-1])}" for plan in self.plans
        )

    def notice(self, diagnostic: Diagnostic) -> None:
        _, _, document = (diagnostic.message_primary or "").partition("plan:\n")
        if document:
            told = json.loads(document)
            self.plans.append(Plan(told["Query Text"], list(_nodes(told["Plan"]))))


@asynccontextmanager
async def watched(dsn: str, *, plans: str) -> AsyncIterator[tuple[PostgresBackend, Watched]]:
    """A backend with one connection, and what runs on it. `plans` is a plan_cache_mode."""
    settings = _SETTINGS | {"plan_cache_mode": plans}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    backend = await PostgresBackend.open(make_conninfo(dsn, options=options), pool_size=1)
    seen = Watched()
    async with backend._pool.connection() as connection:
        connection.add_notice_handler(seen.notice)
    try:
        yield backend, seen
    finally:
        await backend.close()


SHORT: Final = frozenset(
    {
        "namespace",
        "job_type",
        "lane",
        "count_progress",
        "sweep",
        "roll_up_progress",
        "worker_session",
        "session_beat",
        "pause",
        "event_pruned",
        "pipeline_checkpoint",
        "figure_leader",
        "figure_progress",
        "figure_name",
        # Summed up by whoever removes old messages.
        "webhook_count",
    }
)
"""Tables that are short whatever happens."""


@contextmanager
def at_most(
    seen: Watched,
    *,
    rows: int,
    pages: int,
    also_whole: Set[str] = frozenset(),
    also_joins: Set[str] = frozenset(),
) -> Iterator[None]:
    """Fails, showing the plans, when what runs inside looks at more, reads a long table from
    end to end, or keeps a table in memory to join it, which is planned for one size only.
    """
    seen.clear()
    yield
    assert seen.plans, "nothing was run"
    whole = seen.whole_tables - SHORT - also_whole
    assert whole == set(), f"read whole: {whole}\n{seen}"
    joins = seen.joins - also_joins
    assert joins <= {"Nested Loop"}, f"{joins}\n{seen}"
    assert seen.rows <= rows, f"{seen.rows} rows\n{seen}"
    assert seen.pages <= pages, f"{seen.pages} pages\n{seen}"


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Depth first, so the root is the last."""
    for child in node.get("Plans", []):
        yield from _nodes(child)
    yield node


def _type(node: dict[str, Any]) -> str:
    return str(node["Node Type"])


def _rows(node: dict[str, Any]) -> int:
    each: float = sum(
        node.get(name, 0)
        for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    )
    return round(each * float(node["Actual Loops"]))


def _reads_all(node: dict[str, Any]) -> bool:
    if "= ANY ('{}'" in node.get("Filter", ""):
        # Planned for an empty list, which this plan is for alone.
        return False
    return _type(node) == "Seq Scan" or (
        "Index" in _type(node) and "Index Cond" not in node and "Order By" not in node
    )


def _title(statement: str) -> str:
    lines = statement.splitlines()
    return next((line for line in lines if line.strip(" -")), statement)


def _outline(node: dict[str, Any], depth: int = 0) -> str:
    place = node.get("Index Name") or node.get("Relation Name") or node.get("Subplan Name") or ""
    facts = f"rows={_rows(node)} loops={node['Actual Loops']} pages={node['Shared Hit Blocks']}"
    details = [f"{key}: {node[key]}" for key in ("Index Cond", "Filter", "Sort Key") if key in node]
    line = f"{'  ' * depth}{_type(node)} {place} ({facts}) {'; '.join(details)}"
    return "\n".join([line, *(_outline(child, depth + 1) for child in node.get("Plans", []))])
