"""What a handler is told of its job, from the submission through store and wire."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves

PROGRAMS = Path(__file__).parent / "programs"


@proves("external-api.JobContext.rule.4")
async def test_a_handler_is_told_when_its_job_was_submitted(
    operator: Any, start_worker: Callable[..., Any]
) -> None:
    """By the clock of the database, and in whatever attempt it asks."""
    job_id = await operator.submit("when", max_attempts=2)
    submitted = await operator.queue.get_job(job_id, namespace=operator.namespace)
    older = datetime(2024, 2, 29, 12, 30, 15, 123456, UTC)
    dated = await operator.submit("when", max_attempts=2, created_at=older)
    # Both wait for a while before anybody has them.
    start_worker(program="telling:worker", folder=PROGRAMS)
    for name, created_at in ((job_id, submitted.created_at), (dated, older)):
        done = await operator.reached(name, JobState.COMPLETED)
        told = json.loads(done.result)
        assert datetime.fromisoformat(told["at"]) == created_at == done.created_at
        assert told["offset_s"] == 0.0
        assert done.attempt == 2
        assert created_at < done.started_at < done.assigned_at
