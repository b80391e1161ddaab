"""Running a handler in a unit test, without a server.

def test_greets() -> None:
    assert run_handler(worker, "hello", {"name": "Ada"}) == {"greeting": "Hello, Ada"}

For a whole worker on a queue in memory, with a clock that the test moves, see
`queue_operator.harness`.
"""

import asyncio
import socket
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any

from queue_operator.domain.validation import DEFAULT_LIMITS, check_bytes
from queue_operator.worker.context import JobContext, WorkerIdentity
from queue_operator.worker.handlers import HandlerSpec, Place
from queue_operator.worker.injection import Provider, has_coroutine
from queue_operator.worker.runner import Runner
from queue_operator.worker.values import write_payload
from queue_operator.worker.worker import Worker


def job_context(*, last_checkpoint: bytes | None = None, **fields: Any) -> JobContext:
    """A context with the given fields, and plausible ones for the rest. Call
    `context.cancelled.set()` to cancel the job; `last_checkpoint` is what an earlier attempt
    stored.
    """
    defaults: dict[str, Any] = {
        "job_id": "test-job",
        "type": "test",
        "attempt": 1,
        "created_at": datetime.now(UTC),
        "worker": WorkerIdentity("test-session", "test-worker", "default", socket.gethostname()),
    }
    return JobContext(**(defaults | fields), _checkpoint=last_checkpoint)


def run_handler(worker: Worker, type: str, payload: object = None, **fields: Any) -> Any:
    """Returns what the handler returns, the very value, after checking that it could be stored.

    `payload` is bytes, a pydantic model or a JSON value; `fields` are those of `job_context`
    (`attempt=3`, `last_checkpoint=b"…"`), or `context` is a whole one. The handler runs in this
    process, through the worker's middleware and with its dependencies (or `worker.overrides`),
    which are made for this call alone; the lifespan is not entered, but `state=…` gives
    `ctx.state`.

    Raises what the handler raises, PermanentError when the payload or the result does not fit,
    InvalidArgument when the type has no handler or the payload cannot be written. In a coroutine
    use `run_handler_async`.
    """
    spec, context = _prepare(worker, type, payload, fields)
    if _needs_loop(spec) or worker.registry.middleware:
        return asyncio.run(run_handler_async(worker, type, payload, context=context))
    provider = Provider(worker.overrides)
    runner = Runner((), provider)
    try:
        return copy_context().run(runner.value_here, spec, context, DEFAULT_LIMITS.result_bytes)
    finally:
        provider.close_here()


def _needs_loop(spec: HandlerSpec) -> bool:
    return spec.place is Place.LOOP or spec.needs_loop or has_coroutine(spec.needs)


async def run_handler_async(
    worker: Worker, type: str, payload: object = None, **fields: Any
) -> Any:
    """`run_handler` for tests that are coroutines."""
    spec, context = _prepare(worker, type, payload, fields)
    provider = Provider(worker.overrides)
    runner = Runner(worker.registry.middleware, provider)
    try:
        # A task has a context of its own, as every job does in a worker.
        running = runner.value(spec, context, DEFAULT_LIMITS.result_bytes)
        return await asyncio.get_running_loop().create_task(running)
    finally:
        await provider.close()


def _prepare(
    worker: Worker, type_: str, payload: object, fields: dict[str, Any]
) -> tuple[HandlerSpec, JobContext]:
    spec = worker.registry.known(type_)
    if "context" in fields:
        return spec, fields["context"]
    body, content_type = write_payload(payload)
    check_bytes("payload", body, DEFAULT_LIMITS.payload_bytes)
    sent = {"type": type_, "payload": body, "content_type": content_type}
    return spec, job_context(**(sent | fields))
