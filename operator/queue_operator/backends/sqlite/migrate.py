"""The schema of the file: steps that only go forward, counted in `user_version`."""

import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from queue_operator.backends.sql import render
from queue_operator.domain.errors import SchemaMismatch

_APPLICATION_ID: Final = 0x514F5031
"""Which program a SQLite file belongs to: `QOP1`."""


def migrate(connection: sqlite3.Connection, path: Path, now_us: int) -> None:
    """Brings the file at `path` up to date; its transaction is the caller's.

    Raises SchemaMismatch for a file of a newer release, or of another program.
    """
    steps = _steps()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != _APPLICATION_ID:
        raise SchemaMismatch(f"{path} is a database of another program; name another file")
    if version > len(steps):
        raise SchemaMismatch(
            f"{path} has schema version {version}, and this release knows up to {len(steps)}: "
            "use the release that wrote it, or a newer one"
        )
    for step in steps[version:]:
        for statement in _statements(step):
            connection.execute(statement)
    if version == 0:
        connection.execute("UPDATE sweep SET swept_at = ?", (now_us,))
    if version < len(steps):
        # Pragmas take no parameters.
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _steps() -> list[str]:
    """In the order of their numbers, which have no gaps."""
    folder = (files(__package__) / "migrations").iterdir()
    named = {step.name: step for step in folder if step.name.endswith(".sql")}
    return [render(named[name].read_text()) for name in sorted(named)]


def _statements(script: str) -> Iterator[str]:
    """`executescript` would commit what came before it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
