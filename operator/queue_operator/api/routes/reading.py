"""Looks at one job."""

from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.operation import Call, Operation, render
from queue_operator.api.views import failures, history, jobs, logs, steering
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.log_cursor import LogCursor


class NeverFailed(JobNotFound):
    """There is a job, but no failure of it."""

    code = "NEVER_FAILED"

    @property
    def message(self) -> str:
        return f"job {self.job_id!r} has never failed"


async def get_job(call: Call[schemas.JobQuery]) -> Response:
    """The job as it is now, with its payload, result and history where they are asked for."""
    services, query = call.services, call.query
    whole = query.include_result or query.include_payload
    find = services.jobs.get_job if whole else services.jobs.look_at
    job = await find(call.job_id, call.namespace)
    told = None
    if query.include_history:
        told = history.transitions(
            job, await services.jobs.get_history(call.job_id, call.namespace)
        )
    now = services.now()
    shown = {"include_result": query.include_result, "include_payload": query.include_payload}
    size = len(job.result or b"") * query.include_result + len(job.payload) * query.include_payload
    return await call.apart(lambda: render(jobs.job_status(job, now, **shown, history=told)), size)


async def explain_job(call: Call[schemas.NamespaceQuery]) -> Response:
    """Why the job does not run, or that it does: the first thing it waits for, its place in
    line, and who could run it.
    """
    found = await call.services.jobs.explain(call.job_id, call.namespace)
    return render(steering.explanation(found, call.services.now()))


async def get_failure(call: Call[schemas.FailureQuery]) -> Response:
    """The newest failure of a job, and all its attempts where they are asked for."""
    operations = call.services.jobs
    job = await operations.look_at(call.job_id, call.namespace)
    told = await operations.get_history(call.job_id, call.namespace)
    found = failures.of_job(job, told, with_attempts=call.query.include_all_attempts)
    if found is None:
        raise NeverFailed(call.job_id, call.namespace)
    return render(found)


async def get_log(call: Call[schemas.LogQuery]) -> Response:
    """What the handler logged, by attempt: the newest lines of each. It is kept with the job, and
    can be read while the job runs; with the `next_cursor` of an answer, what came since.
    """
    query = call.query
    after = LogCursor.parse(query.cursor or "")
    found = await call.services.jobs.get_log(call.job_id, call.namespace, after)
    return await call.apart(
        lambda: render(logs.job_log(call.job_id, found, query.attempt, query.lines, after)),
        logs.size_of(found),
    )


_MISSING: Final = frozenset({404})

DETAILS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="explainJob",
        method="GET",
        path="/v1/jobs/{job_id}/why",
        verb="get",
        subject="Jobs",
        summary="Why a job does not run",
        run=explain_job,
        query=schemas.NamespaceQuery,
        answers={200: schemas.JobExplanation},
        errors=_MISSING,
    ),
    Operation(
        id="getFailure",
        method="GET",
        path="/v1/jobs/{job_id}/failure",
        verb="get",
        subject="Failures",
        summary="Why a job failed",
        run=get_failure,
        query=schemas.FailureQuery,
        answers={200: schemas.FailureDetails},
        errors=_MISSING,
    ),
    Operation(
        id="getLog",
        method="GET",
        path="/v1/jobs/{job_id}/logs",
        verb="get",
        subject="Jobs",
        summary="What a job logged",
        run=get_log,
        query=schemas.LogQuery,
        answers={200: schemas.JobLog},
        errors=_MISSING,
    ),
)

OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="getJob",
        method="GET",
        path="/v1/jobs/{job_id}",
        verb="get",
        subject="Jobs",
        summary="Look at a job",
        run=get_job,
        query=schemas.JobQuery,
        answers={200: schemas.JobStatus},
        errors=_MISSING,
    ),
)
