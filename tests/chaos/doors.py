"""The ways in that the clients of a chaos run use, with their calls recorded."""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from queue_operator.client import AsyncQueueClient, Backoff, RetryPolicy, Submission
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.job import Job
from queue_operator.domain.retry import BackoffStrategy
from queue_operator.testing.history import Log, record_client, record_queue

NAMESPACE: Final = f"chaos-{secrets.token_hex(4)}"
"""Of this run: others may use the same cluster."""
_ANSWER_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Wish:
    """A job to submit. `payload` is JSON."""

    job_id: str
    type: str
    payload: dict[str, float]
    text: str
    max_attempts: int
    timeout_s: float | None
    callback_url: str = ""


class Door(Protocol):
    """Each call is made once, or as often as the client itself repeats it."""

    async def submit(self, wish: Wish) -> None: ...

    async def cancel(self, job_id: str, *, force: bool) -> None: ...

    async def close(self) -> None: ...


# With the usual one, jobs that fail often would be waited for in the end.
_AT_ONCE: Final = Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay=timedelta())


class RestDoor:
    def __init__(self, port: int, log: Log) -> None:
        url = f"http://127.0.0.1:{port}"
        client = AsyncQueueClient(url, timeout_s=_ANSWER_S, retry=RetryPolicy(attempts=1))
        self._client = record_client(client, log)

    async def submit(self, wish: Wish) -> None:
        timeout = None if wish.timeout_s is None else timedelta(seconds=wish.timeout_s)
        submission = Submission(
            job_id=wish.job_id,
            type=wish.type,
            payload=wish.payload,
            max_attempts=wish.max_attempts,
            backoff=_AT_ONCE,
            timeout=timeout,
            callback_url=wish.callback_url or None,
        )
        await self._client.submit(submission, namespace=NAMESPACE)

    async def cancel(self, job_id: str, *, force: bool) -> None:
        await self._client.cancel(job_id, force=force, namespace=NAMESPACE)

    async def close(self) -> None:
        await self._client.aclose()


class GrpcDoor:
    def __init__(self, port: int, log: Log) -> None:
        self._queue = record_queue(GrpcQueue(f"127.0.0.1:{port}", timeout_s=_ANSWER_S), log)

    async def submit(self, wish: Wish) -> None:
        job = Job(
            id=wish.job_id,
            type=wish.type,
            payload=wish.text.encode(),
            content_type="application/json",
            namespace=NAMESPACE,
            max_attempts=wish.max_attempts,
            timeout_s=wish.timeout_s,
            callback_url=wish.callback_url,
        )
        await self._queue.enqueue_job(job)

    async def cancel(self, job_id: str, *, force: bool) -> None:
        await self._queue.cancel_jobs([], [job_id], namespace=NAMESPACE, force=force)

    async def close(self) -> None:
        await self._queue.close()
