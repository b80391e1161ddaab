"""What the guide of the database says of migrations is so."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql
from tests.integration.postgres.processes import PROGRAM
from tests.programs import started

from queue_operator.backends.postgres.migrate import migrations

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "guides" / "database.md").read_text()
CHANGES = (ROOT / "CHANGELOG.md").read_text()


async def test_the_command_prints_what_the_guide_shows(
    new_database: Callable[[], str], postgres_admin_dsn: str
) -> None:
    found = re.search(
        r"\$ queue-operator migrate --dsn \S+ --grant-to (\w+)\n(.*?)```", GUIDE, re.S
    )
    assert found
    shown, role = found[2], "guide_of_the_database"
    dsn = new_database()
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
        try:
            async with started(PROGRAM, "migrate", "--dsn", dsn, "--grant-to", role) as process:
                async with asyncio.timeout(60):
                    said, told = await process.communicate()
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
        finally:
            admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))
    assert (told + said).decode().replace(role, found[1]) == shown


def test_the_pages_name_the_migrations_that_older_releases_cannot_live_with() -> None:
    needing = [one.name[:4] for one in migrations() if one.needs]
    assert needing == ["0007", "0008", "0009", "0010"]
    assert f"so far {needing[0]} to {needing[-1]}" in GUIDE
    assert f"Migrations {needing[0]} to {needing[-1]} need a release" in CHANGES
