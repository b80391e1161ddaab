"""No role of the queue's is a superuser: one owns the schema and migrates, another runs the queue
and owns nothing.
"""

import json
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.integration.postgres.life import live_a_whole_life
from tests.integration.postgres.processes import PROGRAM, running
from tests.integration.postgres.test_schema import SNAPSHOT, dumped
from tests.programs import finish

from queue_operator.backends.postgres import PostgresBackend, grants, migrate
from queue_operator.backends.postgres.connection import borrowed, transaction
from queue_operator.backends.postgres.migrate import Migration, migrations
from queue_operator.domain.errors import InvalidArgument, MissingPrivilege, Unavailable
from queue_operator.domain.job import Demand, Job

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "database.md"
NAMES = [migration.name for migration in migrations()]
LATER = Migration("9001_later", "CREATE TABLE later (id integer); CREATE SEQUENCE later_no;")
_PASSWORD = "of-a-test"


@dataclass(frozen=True)
class Setting:
    """A database in which nobody may do anything but these two, and what each of them may."""

    admin: str
    owner: str
    runner: str
    dsn: str

    def of(self, role: str) -> str:
        return make_conninfo(self.dsn, user=role, password=_PASSWORD)

    def run(self, statement: LiteralString, **names: str) -> None:
        """As the superuser, with the names in quotes."""
        quoted = {name: sql.Identifier(value) for name, value in names.items()}
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET search_path = queue_operator")
            connection.execute(sql.SQL(statement).format(**quoted))

    def ask(
        self, statement: LiteralString, *parameters: object, **named: object
    ) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement, parameters or named or None).fetchall()


@pytest.fixture
def setting(postgres_admin_dsn: str) -> Iterator[Setting]:
    """The names are as odd as names may be."""
    made = uuid.uuid4().hex[:12]
    owner, runner = f'owner"; %s{made}', f'runner"; %s{made}'
    setting = Setting(
        postgres_admin_dsn, owner, runner, make_conninfo(postgres_admin_dsn, dbname=f"roles_{made}")
    )

    def administer(*statements: LiteralString) -> None:
        with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
            for statement in statements:
                text = sql.SQL(statement).format(
                    db=sql.Identifier(f"roles_{made}"),
                    owner=sql.Identifier(owner),
                    runner=sql.Identifier(runner),
                    password=sql.Literal(_PASSWORD),
                )
                admin.execute(text)

    administer(
        "CREATE DATABASE {db}",
        "CREATE ROLE {owner} LOGIN PASSWORD {password}",
        "CREATE ROLE {runner} LOGIN PASSWORD {password}",
        "REVOKE ALL ON DATABASE {db} FROM PUBLIC",
        "GRANT CONNECT ON DATABASE {db} TO {owner}, {runner}",
    )
    yield setting
    administer("DROP DATABASE {db} WITH (FORCE)", "DROP ROLE {owner}", "DROP ROLE {runner}")


@pytest.fixture
async def ready(setting: Setting) -> Setting:
    """Migrated by its owner, and granted to the role that runs the queue."""
    setting.run("CREATE SCHEMA queue_operator AUTHORIZATION {owner}", owner=setting.owner)
    assert await migrate(setting.of(setting.owner), grant_to=setting.runner) == NAMES
    return setting


# Who migrates


async def test_the_owner_is_granted_nothing_and_loses_nothing(ready: Setting) -> None:
    with pytest.raises(InvalidArgument, match="owns the tables"):
        await migrate(ready.of(ready.owner), grant_to=ready.owner)
    later = [*migrations(), LATER]
    assert await migrate(ready.of(ready.owner), shipped=later) == [LATER.name]


@pytest.mark.parametrize(
    "right",
    [
        "GRANT CREATE ON DATABASE {db} TO {owner}",
        "CREATE SCHEMA queue_operator AUTHORIZATION {owner}",
    ],
)
async def test_one_right_is_enough_to_migrate(setting: Setting, right: LiteralString) -> None:
    database = psycopg.conninfo.conninfo_to_dict(setting.dsn)["dbname"]
    setting.run(right, owner=setting.owner, db=str(database))
    assert await migrate(setting.of(setting.owner)) == NAMES
    assert dumped(setting.dsn) == SNAPSHOT.read_text()
    # What every database has.
    assert setting.ask("SELECT extname FROM pg_extension") == [("plpgsql",)]


async def test_who_may_not_migrate_is_told_what_is_needed(setting: Setting) -> None:
    with pytest.raises(MissingPrivilege) as told:
        await migrate(setting.of(setting.owner))
    role, message = sql.Identifier(setting.owner).as_string(), str(told.value)
    assert f"role {role} may not migrate: permission denied for database" in message
    assert f"CREATE SCHEMA queue_operator AUTHORIZATION {role}" in message


async def test_who_runs_the_queue_finds_a_schema_up_to_date_but_may_not_change_it(
    ready: Setting,
) -> None:
    """As the chart's init container does, when both use the same address."""
    runner = ready.of(ready.runner)
    assert await migrate(runner) == []
    with pytest.raises(MissingPrivilege, match="may not migrate: permission denied"):
        await migrate(runner, shipped=[*migrations(), LATER])
    assert dumped(ready.dsn) == SNAPSHOT.read_text()


# Who runs the queue


async def test_the_role_that_was_granted_lives_a_whole_life(ready: Setting) -> None:
    backend = await PostgresBackend.open(ready.of(ready.runner))
    try:
        await live_a_whole_life(backend)
    finally:
        await backend.close()


async def test_it_holds_what_the_guide_lists_and_nothing_else(ready: Setting) -> None:
    may = ready.ask(
        "SELECT relname::text, privilege FROM pg_class,"
        " unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) AS privilege"
        " WHERE relnamespace = 'queue_operator'::regnamespace AND relkind = 'r'"
        " AND has_table_privilege(%s, pg_class.oid, privilege)",
        ready.runner,
    )
    assert set(may) == {
        (table, privilege)
        for table in grants.TABLES
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE")
        if privilege == "SELECT" or table != "schema_migration"
    }
    [others] = ready.ask(
        "SELECT has_schema_privilege(%(role)s, 'queue_operator', 'CREATE'),"
        " has_database_privilege(%(role)s, current_database(), 'CREATE'),"
        " has_database_privilege(%(role)s, current_database(), 'TEMP'),"
        " has_sequence_privilege(%(role)s, 'queue_operator.job_no_block', 'UPDATE'),"
        " rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls"
        " FROM pg_roles WHERE rolname = %(role)s",
        role=ready.runner,
    )
    assert others == (False,) * 5


def test_the_guide_lists_every_grant() -> None:
    guide = " ".join(GUIDE.read_text().split())
    for statement in grants.statements("queue_runner"):
        assert statement.as_string().replace('"', "") + ";" in guide


async def test_every_table_of_the_schema_is_looked_after(ready: Setting) -> None:
    tables = ready.ask(
        "SELECT relname::text FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'queue_operator'::regnamespace"
    )
    assert {name for (name,) in tables} == set(grants.TABLES)


PRIVILEGES = [
    ("USAGE", "SCHEMA queue_operator"),
    *(("USAGE", f"SEQUENCE {name}") for name in grants.SEQUENCES),
    *((privilege, table) for table in grants.TABLES for privilege in grants.needed(table)),
]


async def test_whatever_is_taken_away_is_named_when_the_store_is_opened(ready: Setting) -> None:
    runner = ready.of(ready.runner)
    for privilege, thing in PRIVILEGES:
        ready.run(f"REVOKE {privilege} ON {thing} FROM {{runner}}", runner=ready.runner)
        with pytest.raises(MissingPrivilege) as told:
            await PostgresBackend.open(runner)
        assert f"lacks {privilege} ON {thing}: have the owner" in str(told.value)
        assert f"migrate --grant-to {shlex.quote(ready.runner)}`" in str(told.value)
        ready.run(f"GRANT {privilege} ON {thing} TO {{runner}}", runner=ready.runner)
    await (await PostgresBackend.open(runner)).close()


async def test_a_role_that_was_granted_nothing_is_told_so_in_short(setting: Setting) -> None:
    setting.run("CREATE SCHEMA queue_operator AUTHORIZATION {owner}", owner=setting.owner)
    await migrate(setting.of(setting.owner))
    with pytest.raises(MissingPrivilege) as told:
        await PostgresBackend.open(setting.of(setting.runner))
    assert "lacks USAGE ON SCHEMA queue_operator, " in str(told.value)
    assert f" and {len(PRIVILEGES) - 5} more: have the owner" in str(told.value)


@pytest.mark.parametrize(
    ("taken", "named"),
    [
        ("REVOKE INSERT ON ready FROM {runner}", "permission denied for table ready"),
        ("REVOKE INSERT ON job FROM {runner}", "permission denied for table job"),
        ("REVOKE USAGE ON SCHEMA queue_operator FROM {runner}", "queue-operator migrate"),
    ],
)
async def test_what_is_taken_away_from_a_running_process_is_told_and_heals(
    ready: Setting, taken: LiteralString, named: str
) -> None:
    backend = await PostgresBackend.open(ready.of(ready.runner))
    try:
        await backend.enqueue_job(Job(id="before", type="t"))
        ready.run(taken, runner=ready.runner)
        with pytest.raises(Unavailable, match=named):
            await backend.enqueue_job(Job(id="after", type="t"))
        await migrate(ready.of(ready.owner), grant_to=ready.runner)
        await backend.enqueue_job(Job(id="after", type="t"))
        assert {job.id for job in await backend.dequeue_jobs("w", [], 9)} == {"before", "after"}
    finally:
        await backend.close()


# Who grants


async def test_the_command_grants_and_says_so(setting: Setting) -> None:
    setting.run("CREATE SCHEMA queue_operator AUTHORIZATION {owner}", owner=setting.owner)
    for applied in (NAMES, []):
        async with running(
            *(PROGRAM, "migrate", "--dsn", setting.of(setting.owner)),
            *("--grant-to", setting.runner, "--output", "json"),
        ) as process:
            said = json.loads(await finish(process))
        assert said == {"applied": applied, "granted_to": setting.runner}
    await (await PostgresBackend.open(setting.of(setting.runner))).close()


@pytest.mark.parametrize("role", ["public", "none", "", "x" * 64, "nobody\0", "no_such_role"])
async def test_what_is_no_role_is_refused_and_nothing_is_changed(
    setting: Setting, role: str
) -> None:
    """`public` would be everybody, even in quotes."""
    setting.run("CREATE SCHEMA queue_operator AUTHORIZATION {owner}", owner=setting.owner)
    with pytest.raises(InvalidArgument, match="grant_to"):
        await migrate(setting.of(setting.owner), grant_to=role)
    assert setting.ask("SELECT FROM pg_tables WHERE schemaname = 'queue_operator'") == []


async def test_who_owns_nothing_cannot_grant(setting: Setting) -> None:
    """It would be a mere warning of the server's."""
    await migrate(setting.dsn, grant_to=setting.runner)
    with pytest.raises(MissingPrivilege, match="cannot grant USAGE ON SCHEMA"):
        await migrate(setting.of(setting.runner), grant_to=setting.owner)


# What is set for a role

HOSTILE = {
    "TimeZone": "Asia/Kolkata",
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-10",
    "client_encoding": "LATIN1",
    "client_min_messages": "error",
    "array_nulls": "off",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "backslash_quote": "off",
    "transform_null_equals": "on",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "search_path": "pg_catalog",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "synchronous_commit": "off",
    "lc_numeric": "C",
    "lc_monetary": "C",
    "lc_time": "C",
    "enable_indexscan": "off",
    "enable_nestloop": "off",
    "jit_above_cost": "0",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "500ms",
    "lock_timeout": "5s",
    "transaction_timeout": "500ms",
}


@pytest.fixture
async def hostile(setting: Setting) -> Setting:
    """Both roles have settings of their own."""
    known = {name for (name,) in setting.ask("SELECT lower(name) FROM pg_settings")}
    for name, value in HOSTILE.items():
        # PostgreSQL 15 and 16 know no transaction_timeout.
        if name.lower() not in known:
            continue
        for role in (setting.owner, setting.runner):
            setting.run(
                "ALTER ROLE {role} SET {name} TO {value}",
                role=role,
                name=name.lower(),
                value=value,
            )
    setting.run("CREATE SCHEMA queue_operator AUTHORIZATION {owner}", owner=setting.owner)
    return setting


async def test_what_is_set_for_the_role_that_migrates_changes_nothing(hostile: Setting) -> None:
    later = Migration(
        "9001_later",
        "SELECT pg_sleep(0.6); CREATE TABLE noon AS SELECT timestamptz '2026-07-01 12:00' AS at;",
    )
    applied = await migrate(hostile.of(hostile.owner), shipped=[*migrations(), later])
    assert applied == [*NAMES, later.name]
    assert hostile.ask("SELECT at FROM queue_operator.noon") == [
        (datetime(2026, 7, 1, 12, tzinfo=UTC),)
    ]
    hostile.run("DROP TABLE noon")
    assert dumped(hostile.dsn) == SNAPSHOT.read_text()


@pytest.mark.parametrize("pooler", [False, True], ids=["direct", "as-behind-a-pooler"])
async def test_what_is_set_for_the_role_that_runs_the_queue_changes_nothing(
    hostile: Setting, pooler: bool
) -> None:
    await migrate(hostile.dsn, grant_to=hostile.runner)
    backend = await PostgresBackend.open(hostile.of(hostile.runner), pooler=pooler)
    try:
        await live_a_whole_life(backend)
        for block in (borrowed, transaction):
            async with block(backend._pool) as connection:
                cursor = await connection.execute("SELECT current_setting('transaction_isolation')")
                assert await cursor.fetchone() == ("read committed",)
                await connection.execute("SELECT pg_sleep(0.6)")
        given = Job(
            id="\u0161\U0001f600",
            type="precise",
            payload=bytes(range(256)),
            created_at=datetime.fromisoformat("2026-11-01T01:30:00.123456-04:00"),
            timeout_s=0.1 + 0.2,
        )
        await backend.enqueue_job(given)
        demand = Demand(assignee_id="w", limit=1, types=frozenset({"precise"}))
        [taken] = await backend.claim([demand], lease_ttl_s=60)
        assert (taken.job_id, taken.payload, taken.created_at) == (
            given.id,
            given.payload,
            given.created_at,
        )
        stored = await backend.get_job(given.id)
        assert (stored.created_at, stored.timeout_s) == (given.created_at, given.timeout_s)
    finally:
        await backend.close()


# What comes later


async def test_what_a_later_migration_makes_is_granted_with_it(ready: Setting) -> None:
    later = [*migrations(), LATER]
    assert await migrate(ready.of(ready.owner), shipped=later) == [LATER.name]
    [may] = ready.ask(
        "SELECT has_table_privilege(%(role)s, 'queue_operator.later', 'SELECT,INSERT'),"
        " has_sequence_privilege(%(role)s, 'queue_operator.later_no', 'USAGE')",
        role=ready.runner,
    )
    assert may == (True, True)


async def test_an_older_release_does_not_miss_rights_on_what_it_does_not_know(
    ready: Setting,
) -> None:
    await migrate(ready.dsn, shipped=[*migrations(), LATER])
    [may] = ready.ask(
        "SELECT has_table_privilege(%s, 'queue_operator.later', 'SELECT')", ready.runner
    )
    assert may == (False,)
    await (await PostgresBackend.open(ready.of(ready.runner))).close()
