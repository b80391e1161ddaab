"""Two empty stores for each history, and how far the histories went."""

import asyncio
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.model.walks import WALKED

from queue_operator.backends.postgres import migrate


@pytest.fixture(scope="session")
def model_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """A migrated database for the histories alone."""
    name = f"model_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        address = make_conninfo(postgres_admin_dsn, dbname=name)
        asyncio.run(migrate(address))
        yield address
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for names, (steps, histories) in WALKED.items():
        terminalreporter.write_line(f"{names}: {steps} steps in {histories} histories")
