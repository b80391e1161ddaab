"""The document, the client and the server say the same."""

import asyncio
from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel
from tests.integration.api.door import TOKEN, Door

from queue_operator.api.routes import OPERATIONS
from queue_operator.client import AsyncQueueClient, QueueClient, Submission, models
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    JobNotFound,
    Unauthenticated,
)
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event


async def document(door: Door) -> dict[str, Any]:
    answer = await door.http.get("/v1/openapi.json")
    served: dict[str, Any] = answer.json()
    return served


async def test_the_document_is_valid_and_complete(door: Door) -> None:
    served = await document(door)
    validate(served)
    operations = {
        operation["operationId"]
        for methods in served["paths"].values()
        for operation in methods.values()
    }
    assert operations == {operation.id for operation in OPERATIONS}
    for methods in served["paths"].values():
        for operation in methods.values():
            assert "422" not in operation["responses"]
            assert {"400", "401", "403", "500", "503"} <= set(operation["responses"])


@pytest.mark.parametrize(
    "model",
    [
        models.SubmissionResult,
        models.BatchResult,
        models.JobStatus,
        models.JobResult,
        models.CancellationResult,
        models.QueueStats,
        models.APIError,
        models.ItemError,
        models.ErrorDetail,
        models.ErrorInfo,
        models.ProgressInfo,
    ],
)
async def test_the_client_knows_every_field(door: Door, model: type[BaseModel]) -> None:
    schema = (await document(door))["components"]["schemas"][model.__name__]
    assert set(model.model_fields) == set(schema["properties"])


async def test_the_client_can_send_every_field(door: Door) -> None:
    schema = (await document(door))["components"]["schemas"]["JobSubmission"]
    sent = {name.replace("payload_bytes", "payload_base64") for name in Submission.model_fields}
    assert sent == set(schema["properties"])


async def test_a_life_through_the_asynchronous_client(door: Door) -> None:
    async with AsyncQueueClient(door.url, TOKEN) as queue:
        given = Submission(type="t", payload={"n": 1}, tags={"k": "v"})
        result = await queue.submit(given, namespace=door.namespace)
        assert result.job_id is not None
        await door.claimed(result.job_id)
        outcome = Outcome(
            result.job_id,
            Event.COMPLETE,
            door.namespace,
            result=b"[1]",
            result_content_type="application/json",
        )
        await door.backend.settle([outcome])
        job = await queue.get(
            result.job_id, include_result=True, include_payload=True, namespace=door.namespace
        )
        assert job.result is not None
        assert (job.payload, job.payload_bytes) == ({"n": 1}, None)
        assert (job.state, job.result.output, job.tags) == ("COMPLETED", [1], {"k": "v"})
        stats = await queue.stats(tags=["k=v"], namespace=door.namespace)
        assert stats.total == 1
        cancelled = await queue.cancel(result.job_id, namespace=door.namespace)
        assert cancelled.status == "ALREADY_COMPLETE"


async def test_a_life_through_the_blocking_client(door: Door) -> None:
    def live() -> None:
        with QueueClient(door.url, lambda: TOKEN) as queue:
            jobs = [Submission(type="t", payload_bytes=b"\x00", job_id=f"b{n}") for n in range(3)]
            assert queue.submit_batch(jobs, namespace=door.namespace).accepted == 3
            job = queue.get("b1", include_payload=True, namespace=door.namespace)
            assert job.payload_bytes == b"\x00"
            again = queue.submit_batch(jobs, atomic=False, namespace=door.namespace)
            assert again.rejected == 3
            with pytest.raises(DuplicateJob) as taken:
                queue.submit_batch(jobs, namespace=door.namespace)
            assert taken.value.job_ids == ("b0", "b1", "b2")
            assert queue.cancel("b0", namespace=door.namespace).status == "CANCELLED"
            assert queue.get("b0", namespace=door.namespace).state == "CANCELLED"

    await asyncio.to_thread(live)
    assert (await door.stored("b1")).payload == b"\x00"


@pytest.mark.parametrize("job_id", [".", "..", "a/../b", "%2F", "x/cancel", "ü?#"])
async def test_the_client_reaches_any_id(door: Door, job_id: str) -> None:
    async with AsyncQueueClient(door.url, TOKEN) as queue:
        await queue.submit(
            Submission(type="t", payload=None, job_id=job_id), namespace=door.namespace
        )
        assert (await queue.get(job_id, namespace=door.namespace)).job_id == job_id
        cancelled = await queue.cancel(job_id, namespace=door.namespace)
        assert (cancelled.job_id, cancelled.status) == (job_id, "CANCELLED")


async def test_the_clients_errors(door: Door) -> None:
    async with AsyncQueueClient(door.url, TOKEN) as queue:
        with pytest.raises(JobNotFound):
            await queue.get("nope")
        with pytest.raises(InvalidArgument) as faulty:
            await queue.submit(Submission(type="t", payload=None, max_attempts=1000))
        assert faulty.value.field == "max_attempts"
        with pytest.raises(InvalidArgument, match="over the limit"):
            await queue.submit(Submission(type="t", payload="x" * 2_000_000))
    async with AsyncQueueClient(door.url, "wrong") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.stats()
