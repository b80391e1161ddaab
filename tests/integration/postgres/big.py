"""Jobs of the big namespace of `million.py`: named, made and taken."""

import uuid
from typing import Any

from tests.integration.postgres import million

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event

WORKER = "worker"


def ids(first: int, count: int) -> list[str]:
    return [f"job-{number:08d}" for number in range(first, first + count)]


def new_jobs(count: int, **fields: Any) -> list[Job]:
    return [
        Job(id=uuid.uuid4().hex, type="type-1", namespace=million.BIG, **fields)
        for _ in range(count)
    ]


async def take(backend: PostgresBackend, namespace: str, limit: int) -> list[Held]:
    demand = Demand(assignee_id=WORKER, limit=limit, namespace=namespace)
    claimed = await backend.claim([demand], lease_ttl_s=600)
    return [Held(a.job_id, a.token, a.namespace) for a in claimed]


def outcome(held: Held, event: Event, error: ErrorInfo | None = None) -> Outcome:
    result = b"r" if event is Event.COMPLETE else None
    return Outcome(
        held.job_id, event, namespace=held.namespace, token=held.token, result=result, error=error
    )
