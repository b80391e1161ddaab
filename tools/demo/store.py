"""What Postgres says, read beside the operator and not through it."""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from demo.narrator import DemoFailed


@dataclass(frozen=True)
class Store:
    """Reads of the job tables, by the resource's uid."""

    dsn: str

    def query(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        try:
            with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
                connection.execute("SET search_path = queue_operator")
                return connection.execute(statement, parameters).fetchall()
        except psycopg.Error as error:
            raise DemoFailed(f"Postgres does not answer the demo's question: {error}") from error

    def holder(self, uid: str) -> dict[str, Any] | None:
        """The lease of a running job: worker, session, token."""
        rows = self.query(
            "SELECT l.worker_name, l.assignee_id, l.token::text AS token, l.state"
            " FROM lease l JOIN job j USING (job_no) WHERE j.id = %s",
            uid,
        )
        return rows[0] if rows else None

    def ended(self, uid: str) -> dict[str, Any] | None:
        """The final row of a job: state, worker, session, token, attempt, result."""
        rows = self.query(
            "SELECT f.*, f.token::text AS token FROM final f JOIN job j USING (job_no)"
            " WHERE j.id = %s",
            uid,
        )
        return rows[0] if rows else None

    def attempts(self, uid: str) -> list[dict[str, Any]]:
        """Every ended attempt, oldest first. One that completed its job while it ran has no
        row but the job's final one.
        """
        return self.query(
            "WITH mine AS (SELECT job_no FROM job WHERE id = %s)"
            " SELECT version, token::text AS token, event, worker_name FROM attempt"
            " WHERE job_no IN (SELECT job_no FROM mine)"
            " UNION ALL SELECT lease_version, token::text, reason, worker_name FROM final"
            " WHERE job_no IN (SELECT job_no FROM mine) AND reason = 'COMPLETE' AND NOT EXISTS"
            " (SELECT FROM attempt a WHERE a.job_no = final.job_no AND a.version = lease_version)"
            " ORDER BY version",
            uid,
        )
