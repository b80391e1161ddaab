"""The operations under /v1."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import anyio
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from queue_operator.api import schemas, submissions, views
from queue_operator.api.body import read_json
from queue_operator.api.cancellation import cancel
from queue_operator.api.intake import submit, submit_batch
from queue_operator.api.services import Services, ServicesOf
from queue_operator.domain.validation import check_tags

router = APIRouter(prefix="/v1")

_IN_LOOP_BYTES: Final = 128 * 1024
"""Larger bodies and results are handled in a thread, one at a time."""
_SMALL_BODY_BYTES: Final = 64 * 1024

T = TypeVar("T")


def _body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """The documentation of a body that the route reads itself."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}
    }


@router.post(
    "/jobs",
    operation_id="submitJob",
    summary="Submit a job",
    status_code=201,
    response_model=schemas.SubmissionResult,
    openapi_extra=_body(schemas.JobSubmission),
)
async def submit_one(
    request: Request, services: ServicesOf, query: Annotated[schemas.NamespaceQuery, Query()]
) -> Response:
    """Needs the verb `create` on `queuejobs`."""
    namespace = await services.admit(request, "create", query.namespace)
    limit = submissions.submission_bytes(services.limits.payload_bytes)
    body = await read_json(request, min(limit, services.settings.rest.body_bytes))
    job = await _apart(lambda: submissions.job_from(body, namespace, services), len(body), services)
    return _render(await submit(job, services), 201)


@router.post(
    "/jobs/batch",
    operation_id="submitBatch",
    summary="Submit up to 1000 jobs",
    status_code=201,
    response_model=schemas.BatchResult,
    responses={200: {"model": schemas.BatchResult, "description": "Not atomic: see each result."}},
    openapi_extra=_body(schemas.BatchSubmission),
)
async def submit_many(
    request: Request, services: ServicesOf, query: Annotated[schemas.NamespaceQuery, Query()]
) -> Response:
    """All jobs or none, unless `atomic` is false. Needs the verb `create` on `queuejobs`."""
    namespace = await services.admit(request, "create", query.namespace)
    body = await read_json(request, services.settings.rest.body_bytes)
    batch = await _apart(
        lambda: submissions.batch_from(body, namespace, services), len(body), services
    )
    return _render(await submit_batch(batch, services), 201 if batch.atomic else 200)


# Ids may hold slashes, so a longer path must come before the one it could be an id of.
@router.post(
    "/jobs/{job_id:path}/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    response_model=schemas.CancellationResult,
    openapi_extra=_body(schemas.CancellationRequest, required=False),
)
async def cancel_one(
    request: Request,
    services: ServicesOf,
    job_id: str,
    query: Annotated[schemas.NamespaceQuery, Query()],
) -> Response:
    """A waiting job is cancelled at once, a running one is asked to stop. Needs the verb
    `update` on `queuejobs`.
    """
    namespace = await services.admit(request, "update", query.namespace)
    body = await read_json(request, _SMALL_BODY_BYTES, required=False)
    wanted = submissions.parse(body or b"{}", schemas.CancellationRequest)
    return _render(await cancel(job_id, namespace, wanted.reason, wanted.force, services), 200)


@router.get(
    "/jobs/{job_id:path}",
    operation_id="getJob",
    summary="Look at a job",
    response_model=schemas.JobStatus,
)
async def get_one(
    request: Request, services: ServicesOf, job_id: str, query: Annotated[schemas.JobQuery, Query()]
) -> Response:
    """Needs the verb `get` on `queuejobs`."""
    namespace = await services.admit(request, "get", query.namespace)
    job = await services.queue.get_job(job_id, namespace=namespace)
    now, with_result = services.now(), query.include_result
    return await _apart(
        lambda: _render(views.job_status(job, now, include_result=with_result), 200),
        len(job.result or b"") if with_result else 0,
        services,
    )


@router.get(
    "/stats",
    operation_id="getStats",
    summary="Count the jobs of a namespace",
    response_model=schemas.QueueStats,
)
async def stats(
    request: Request, services: ServicesOf, query: Annotated[schemas.StatsQuery, Query()]
) -> Response:
    """Needs the verb `list` on `queuejobs`."""
    namespace = await services.admit(request, "list", query.namespace)
    check_tags("tag", query.tag, services.limits)
    counted = await services.queue.get_job_stats(frozenset(query.tag), namespace=namespace)
    return _render(views.queue_stats(counted), 200)


async def _apart(work: Callable[[], T], size: int, services: Services) -> T:
    """What `work` gives, which handles `size` bytes of JSON."""
    if size <= _IN_LOOP_BYTES:
        return work()
    return await anyio.to_thread.run_sync(work, limiter=services.parsing)


def _render(answer: BaseModel, status: int) -> Response:
    # Fields that a view left unset do not apply (a JSON output of null does).
    text = answer.model_dump_json(exclude_unset=True)
    return Response(text, status, media_type="application/json")
