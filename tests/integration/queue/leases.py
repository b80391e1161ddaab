"""Leases as the tables have them."""

from datetime import datetime

import psycopg

_END = (
    "SELECT look_at FROM queue_operator.lease JOIN queue_operator.job USING (job_no)"
    " JOIN queue_operator.lease_check ON kind IN ('CLAIM', 'RENEWAL')"
    " AND (job_no << 16) | (lease_version & 65535) = ANY (leases)"
    " WHERE job.id = %s ORDER BY number DESC LIMIT 1"
)


async def lease_end(dsn: str, job_id: str) -> datetime:
    """When the lease of a job ends."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        row = await (await connection.execute(_END, (job_id,))).fetchone()
    assert row is not None, "the job holds no lease"
    assert isinstance(row[0], datetime)
    return row[0]
