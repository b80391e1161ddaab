"""Running a handler in a unit test, without a server.

def test_greets() -> None:
    assert run_handler(worker, "hello", {"name": "Ada"}) == {"greeting": "Hello, Ada"}
"""

import asyncio
import socket
from datetime import UTC, datetime
from typing import Any

from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.worker.context import JobContext, WorkerIdentity
from queue_operator.worker.handlers import HandlerSpec, encode_result
from queue_operator.worker.worker import Worker


def job_context(**fields: Any) -> JobContext:
    """A context with the given fields, and plausible ones for the rest. Call
    `context.cancelled.set()` to cancel the job.
    """
    defaults: dict[str, Any] = {
        "job_id": "test-job",
        "type": "test",
        "attempt": 1,
        "created_at": datetime.now(UTC),
        "worker": WorkerIdentity("test-session", "test-worker", "default", socket.gethostname()),
    }
    return JobContext(**(defaults | fields))


def run_handler(worker: Worker, type: str, payload: object = None, **fields: Any) -> Any:
    """Returns what the handler returns, after checking that it could be stored.

    `payload` is bytes, a pydantic model or a JSON value; `fields` are of the context, or
    `context` is a whole one. Raises what the handler raises, PermanentError when the
    payload or the result does not fit, KeyError when the type has no handler. In a
    coroutine use `run_handler_async`.
    """
    spec, context = _prepare(worker, type, payload, fields)
    if spec.is_async:
        return asyncio.run(run_handler_async(worker, type, payload, context=context))
    return _checked(spec.function(*spec.arguments(context)))


async def run_handler_async(
    worker: Worker, type: str, payload: object = None, **fields: Any
) -> Any:
    """`run_handler` for tests that are coroutines."""
    spec, context = _prepare(worker, type, payload, fields)
    if spec.is_async:
        return _checked(await spec.function(*spec.arguments(context)))
    return _checked(await asyncio.to_thread(spec.function, *spec.arguments(context)))


def _prepare(
    worker: Worker, type_: str, payload: object, fields: dict[str, Any]
) -> tuple[HandlerSpec, JobContext]:
    spec = worker.registry.get(type_)
    if spec is None:
        known = ", ".join(sorted(spec.type for spec in worker.registry.specs()))
        raise KeyError(f"no handler for {type_!r}; this worker has: {known}")
    if "context" in fields:
        return spec, fields["context"]
    body, content_type = encode_result(payload, DEFAULT_LIMITS.payload_bytes)
    sent = {"type": type_, "payload": body, "content_type": content_type}
    return spec, job_context(**(sent | fields))


def _checked(result: object) -> object:
    encode_result(result, DEFAULT_LIMITS.result_bytes)
    return result
