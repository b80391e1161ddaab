"""A database that is restored from a backup goes on feeding the same lake."""

import socket
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.pipeline.stage import Stage

from queue_operator.devcluster.pgprograms import programs
from queue_operator.devcluster.postgres import Postgres

# PySpark leaves the socket open over which it fetched a result.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

AFTER_THE_RESTORE = datetime(2026, 3, 1, 10, 45, tzinfo=UTC)


@pytest.fixture
def other_server() -> Iterator[Postgres]:
    """Another PostgreSQL, with a system identifier and transaction ids of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # Not below pytest's own folder, which the server's unprivileged user cannot enter.
    folder = Path("/var/tmp") / f"queue-operator-restore-{uuid.uuid4().hex}"  # noqa: S108
    server = Postgres(folder, "127.0.0.1", port)
    server.start()
    yield server
    server.kill()
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def copy_database(source: str, target: str, file: Path) -> None:
    folder = programs()
    subprocess.run([folder / "pg_dump", "-Fc", "-d", source, "-f", file], check=True)
    subprocess.run([folder / "pg_restore", "--no-owner", "-d", target, file], check=True)


def use_up_transaction_ids(connection: psycopg.Connection[Any], upto: int) -> None:
    connection.execute(
        "CREATE PROCEDURE use_up(upto xid8) LANGUAGE plpgsql AS $$ BEGIN"
        " WHILE pg_current_xact_id() <= upto LOOP COMMIT; END LOOP; END $$"
    )
    connection.execute("SELECT set_config('synchronous_commit', 'off', false)")
    connection.execute("CALL use_up(%s::text::xid8)", (upto,))


def counts(stage: Stage) -> dict[str, int]:
    return {type_: row["transitions"] for (type_, _), row in stage.rollup().items()}


def test_a_restored_database_opens_a_generation(
    stage: Stage, other_server: Postgres, tmp_path: Path
) -> None:
    stage.events.submit(2, type="kept")
    assert stage.run().generation == 1
    copy_database(stage.dsn, other_server.admin_dsn, tmp_path / "dump")
    # After the backup: the restored database will give job number 3 to another job.
    stage.events.submit(1, type="forgotten")
    stage.run()

    with psycopg.connect(other_server.admin_dsn, autocommit=True) as connection:
        events = type(stage.events)(connection, iter([3, 4]))
        restored = type(stage)(other_server.admin_dsn, stage.folder, stage.spark, events)
        events.submit(1, type="new", at=AFTER_THE_RESTORE)
        report = restored.run()
        assert (report.generation, report.bronze_rows) == (2, 3)
        assert counts(restored) == {"kept": 2, "forgotten": 1, "new": 1}

        # Transaction ids of the old server become visible in the new one a second time.
        newest = restored.query("SELECT max(xid::text::bigint) FROM queue_operator.job_event")
        use_up_transaction_ids(connection, newest[0]["max"])
        events.submit(1, type="new")
        assert restored.run().generation == 2
        assert counts(restored) == {"kept": 2, "forgotten": 1, "new": 2}
        assert restored.run().bronze_rows == 0
