"""The unary calls of the gRPC Queue: for each its right, its arguments and its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from queue_operator.auth.protocol import QUEUE_JOBS, QUEUE_JOBS_STATUS, QUEUE_WORKERS
from queue_operator.domain.errors import Forbidden, InvalidArgument, QueueError, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.lease import Held
from queue_operator.domain.limits import MAX_DELAYS
from queue_operator.queue.bulk import MOST_JOBS
from queue_operator.queue.protocol import HostedQueue
from queue_operator.rpc.door import public
from queue_operator.settings import LimitSettings
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.status import error_to_wire
from queue_operator.wire.v1 import queue_pb2 as pb

Run = Callable[[HostedQueue, Any, str], Awaitable[Message]]
Namespaces = Callable[[Any, str], Collection[str]]
Counted = Callable[[Any, LimitSettings], Iterable[tuple[str, int, int]]]
"""Of a request: field, number and limit."""
Told = Callable[[Any], dict[str, Any]]
"""What the audit is told of a request."""
Submitted = Callable[[Any], Sequence[pb.Job]]
"""The jobs of a submission, as its message has them."""

EVERYWHERE: Final = ("",)
"""What a review is asked about that concerns all namespaces."""


@dataclass(frozen=True, slots=True)
class Right:
    """What a caller needs, in each namespace that the call concerns."""

    verb: str
    resource: str = QUEUE_JOBS


OUTCOME: Final = Right("update", QUEUE_JOBS_STATUS)


def _of_the_call(request: Any, namespace: str) -> Collection[str]:
    return (namespace,)


def _nothing(request: Any) -> str:
    return ""


def _no_numbers(request: Any, limits: LimitSettings) -> Iterable[tuple[str, int, int]]:
    return ()


def _numbers_of_a_job(
    job: pb.Job, limits: LimitSettings, place: str = ""
) -> Iterable[tuple[str, int, int]]:
    """What would be copied, entry by entry, before anybody looks at it."""
    yield f"{place}tags", len(job.tags), limits.tags
    yield f"{place}depends_on", len(job.depends_on), limits.dependencies
    yield f"{place}backoff.delays", len(job.backoff.delays), MAX_DELAYS
    yield f"{place}error.context", len(job.error.context), 0


def _numbers_of_one(request: Any, limits: LimitSettings) -> Iterable[tuple[str, int, int]]:
    yield from _numbers_of_a_job(request.job, limits)


def _numbers_of_jobs(request: Any, limits: LimitSettings) -> Iterable[tuple[str, int, int]]:
    yield "jobs", len(request.jobs), limits.batch_jobs
    waited_for = sum(len(job.depends_on) for job in request.jobs)
    yield "depends_on of all jobs", waited_for, limits.batch_dependencies
    for n, job in enumerate(request.jobs):
        yield from _numbers_of_a_job(job, limits, f"jobs[{n}].")


def _numbers_of_tags(request: Any, limits: LimitSettings) -> Iterable[tuple[str, int, int]]:
    yield "tags", len(request.tags), limits.tags


def _numbers_of_ids(request: Any, limits: LimitSettings) -> Iterable[tuple[str, int, int]]:
    yield "job_ids", len(request.job_ids), MOST_JOBS
    yield from _numbers_of_tags(request, limits)


def _numbers_of_named(
    request: pb.SuspendJobsRequest, limits: LimitSettings
) -> Iterable[tuple[str, int, int]]:
    yield "job_ids", len(request.job_ids), MOST_JOBS


def _numbers_of_held(request: Any, limits: LimitSettings) -> Iterable[tuple[str, int, int]]:
    yield "jobs", len(request.jobs), MOST_JOBS


def check_numbers(method: "Method", request: Any, limits: LimitSettings) -> None:
    """Raises InvalidArgument for more than a call may have."""
    for field, number, limit in method.counted(request, limits):
        check_entries(field, number, limit)


def check_entries(field: str, number: int, limit: int) -> None:
    """Raises InvalidArgument for more entries than the limit."""
    if number > limit:
        raise InvalidArgument(field, f"has {number} entries; the limit is {limit}: send less")


def _of_all_where_asked(request: Any, namespace: str) -> Collection[str]:
    return EVERYWHERE if request.all_namespaces else (namespace,)


@dataclass(frozen=True, slots=True)
class Method:
    """One unary call. `reserved` names a field of the request that only who may write outcomes may
    set; for who may not, `run_without` answers, where it is not the whole call that is refused.
    `counted` is what the request may have only so many of: it is worked on in one piece.
    `submitted` are the new jobs of a submission.
    """

    request: type[Message]
    right: Right
    run: Run
    namespaces: Namespaces = _of_the_call
    audited: Told | None = None
    reserved: Callable[[Any], str] = _nothing
    run_without: Run | None = None
    counted: Counted = _no_numbers
    submitted: Submitted | None = None


def _the_job(request: pb.EnqueueJobRequest) -> Sequence[pb.Job]:
    return (request.job,)


def _the_jobs(request: pb.EnqueueJobsRequest | pb.EnqueueEachRequest) -> Sequence[pb.Job]:
    return request.jobs


def _one_job(request: Any) -> dict[str, Any]:
    return {"job": request.job.id}


def _many_jobs(request: Any) -> dict[str, Any]:
    return {"jobs": [job.id for job in request.jobs]}


def _selected(request: Any) -> dict[str, Any]:
    return {"jobs": list(request.job_ids), "filter": {"tags": list(request.tags)}}


def _suspended(request: pb.SuspendJobsRequest) -> dict[str, Any]:
    return {"jobs": list(request.job_ids), "filter": {"resume": request.resume}}


def _ended(request: Any) -> dict[str, Any]:
    """Of an outcome. Workers give a token; without one it is an administrator's word."""
    return {"job": request.job_id, "token": "given" if request.HasField("token") else "none"}


def _given_back(request: pb.ReturnJobsRequest) -> dict[str, Any]:
    return {"jobs": [job.job_id for job in request.jobs]}


def _of_namespaces(request: Any) -> dict[str, Any]:
    return {"filter": {"all_namespaces": bool(request.all_namespaces)}}


# Submission

RESERVED: Final = ("created_at", "resource")
"""What a submitter has no business with: where a job stands in line, and whose status it writes."""


def _reserved_of(job: pb.Job) -> str:
    return next((name for name in RESERVED if job.HasField(name)), "")


def _reserved_of_one(request: pb.EnqueueJobRequest) -> str:
    return _reserved_of(request.job)


def _reserved_of_many(request: pb.EnqueueJobsRequest | pb.EnqueueEachRequest) -> str:
    named = ((n, _reserved_of(job)) for n, job in enumerate(request.jobs))
    return next((f"jobs[{n}].{name}" for n, name in named if name), "")


def may_not_set(field: str) -> Forbidden:
    """Why a caller is refused that sets a reserved field."""
    return Forbidden(
        f"{field}: only who may {OUTCOME.verb} {OUTCOME.resource} may set it; leave it out, and "
        "the queue does"
    )


async def _enqueue_job(
    queue: HostedQueue, request: pb.EnqueueJobRequest, namespace: str
) -> Message:
    job = convert.job_from_wire(request.job, namespace=namespace)
    return pb.EnqueueJobResponse(job_id=await queue.enqueue_job(job))


async def _enqueue_jobs(
    queue: HostedQueue, request: pb.EnqueueJobsRequest, namespace: str
) -> Message:
    jobs = convert.jobs_from_wire(request.jobs, namespace=namespace)
    return pb.EnqueueJobsResponse(job_ids=await queue.enqueue_jobs(jobs))


async def _enqueue_each(
    queue: HostedQueue, request: pb.EnqueueEachRequest, namespace: str, *, trusted: bool = True
) -> Message:
    answers = await asyncio.gather(
        *(_enqueued(queue, job, namespace, trusted) for job in request.jobs),
        return_exceptions=True,
    )
    for answer in answers:
        if isinstance(answer, Unavailable):
            # Whether it is stored nobody knows: the call is repeated, as one for it alone would be.
            raise answer
    enqueued = [
        pb.Enqueued(job_id=answer)
        if isinstance(answer, str)
        else pb.Enqueued(job_id=message.id, error=error_to_wire(public(_known(answer))))
        for message, answer in zip(request.jobs, answers, strict=True)
    ]
    return pb.EnqueueEachResponse(enqueued=enqueued)


async def _enqueued(queue: HostedQueue, message: pb.Job, namespace: str, trusted: bool) -> str:
    if not trusted and (field := _reserved_of(message)):
        raise may_not_set(field)
    return await queue.enqueue_job(convert.job_from_wire(message, namespace=namespace))


def _known(error: BaseException) -> QueueError:
    return error if isinstance(error, QueueError) else QueueError(str(error))


def _namespace_of_job(request: pb.EnqueueJobRequest, namespace: str) -> Collection[str]:
    return (request.job.namespace or namespace,)


def _namespaces_of_jobs(
    request: pb.EnqueueJobsRequest | pb.EnqueueEachRequest, namespace: str
) -> Collection[str]:
    """A batch without jobs is asked about too: nobody learns anything without a right."""
    return {job.namespace or namespace for job in request.jobs} or (namespace,)


# Outcomes


def _token(request: Any) -> str | None:
    return str(request.token) if request.HasField("token") else None


async def _complete_job(
    queue: HostedQueue, request: pb.CompleteJobRequest, namespace: str
) -> Message:
    await queue.complete_job(
        request.job_id, request.result, namespace=namespace, token=_token(request)
    )
    return pb.CompleteJobResponse()


def _ending(method: str, response: type[Message]) -> Run:
    """The calls that end an attempt with a message differ in their names only."""

    async def run(queue: HostedQueue, request: Any, namespace: str) -> Message:
        call = getattr(queue, method)
        await call(
            request.job_id, request.error_message, namespace=namespace, token=_token(request)
        )
        return response()

    return run


async def _acknowledge_cancellation(
    queue: HostedQueue, request: pb.AcknowledgeCancellationRequest, namespace: str
) -> Message:
    await queue.acknowledge_cancellation(
        request.job_id, request.was_executing, namespace=namespace, token=_token(request)
    )
    return pb.AcknowledgeCancellationResponse()


async def _return_jobs(
    queue: HostedQueue, request: pb.ReturnJobsRequest, namespace: str
) -> Message:
    await queue.give_back([Held(job.job_id, job.token, namespace) for job in request.jobs])
    return pb.ReturnJobsResponse()


# The rest


async def _cancel_jobs(
    queue: HostedQueue, request: pb.CancelJobsRequest, namespace: str
) -> Message:
    cancelled = await queue.cancel_jobs(
        list(request.tags),
        list(request.job_ids),
        namespace=namespace,
        force=request.force,
        reason=request.reason,
    )
    # The requests hold lease tokens, which are between the queue and the workers.
    return pb.CancelJobsResponse(
        cancelled_job_ids=cancelled.cancelled_job_ids, unknown_job_ids=cancelled.unknown_job_ids
    )


async def _suspend_jobs(
    queue: HostedQueue, request: pb.SuspendJobsRequest, namespace: str
) -> Message:
    change = queue.resume_jobs if request.resume else queue.suspend_jobs
    left = await change(list(request.job_ids), namespace=namespace)
    return pb.SuspendJobsResponse(unknown_job_ids=left)


async def _get_job(queue: HostedQueue, request: pb.GetJobRequest, namespace: str) -> Message:
    job = await queue.get_job(request.job_id, namespace=namespace)
    return pb.GetJobResponse(job=convert.job_to_wire(job))


async def _get_job_stats(
    queue: HostedQueue, request: pb.GetJobStatsRequest, namespace: str
) -> Message:
    stats = await queue.get_job_stats(list(request.tags), namespace=namespace)
    return pb.GetJobStatsResponse(stats=convert.stats_to_wire(stats))


async def _delete_jobs(
    queue: HostedQueue, request: pb.DeleteJobsRequest, namespace: str
) -> Message:
    deleted = await queue.delete_jobs(
        list(request.tags), list(request.job_ids), namespace=namespace
    )
    return pb.DeleteJobsResponse(deleted=deleted)


async def _cleanup_expired_jobs(
    queue: HostedQueue, request: pb.CleanupExpiredJobsRequest, namespace: str
) -> Message:
    ttl_s = convert.seconds_from_wire("ttl", request.ttl)
    where = None if request.all_namespaces else namespace
    return pb.CleanupExpiredJobsResponse(
        deleted=await queue.cleanup_expired_jobs(ttl_s, namespace=where)
    )


async def _reset_running_jobs(
    queue: HostedQueue, request: pb.ResetRunningJobsRequest, namespace: str
) -> Message:
    await queue.reset_running_jobs(namespace=None if request.all_namespaces else namespace)
    return pb.ResetRunningJobsResponse()


async def _mark_worker_unresponsive(
    queue: HostedQueue, request: pb.MarkWorkerUnresponsiveRequest, namespace: str
) -> Message:
    await queue.mark_worker_unresponsive(request.assignee_id)
    return pb.MarkWorkerUnresponsiveResponse()


def messages_of(jobs: Iterable[Job], room_bytes: int) -> Iterable[tuple[list[Job], pb.JobBatch]]:
    """Batches of at most `room_bytes`; a job larger than that travels alone."""
    batch, of, used = pb.JobBatch(), list[Job](), 0
    for job in jobs:
        message = convert.job_to_wire(job)
        size = message.ByteSize()
        if of and used + size > room_bytes:
            yield of, batch
            batch, of, used = pb.JobBatch(), [], 0
        batch.jobs.append(message)
        of.append(job)
        used += size
    if of:
        yield of, batch


METHODS: Final[dict[str, Method]] = {
    "EnqueueJob": Method(
        pb.EnqueueJobRequest,
        Right("create"),
        _enqueue_job,
        _namespace_of_job,
        _one_job,
        _reserved_of_one,
        counted=_numbers_of_one,
        submitted=_the_job,
    ),
    "EnqueueJobs": Method(
        pb.EnqueueJobsRequest,
        Right("create"),
        _enqueue_jobs,
        _namespaces_of_jobs,
        _many_jobs,
        _reserved_of_many,
        counted=_numbers_of_jobs,
        submitted=_the_jobs,
    ),
    "EnqueueEach": Method(
        pb.EnqueueEachRequest,
        Right("create"),
        _enqueue_each,
        _namespaces_of_jobs,
        _many_jobs,
        _reserved_of_many,
        partial(_enqueue_each, trusted=False),
        _numbers_of_jobs,
        _the_jobs,
    ),
    "CompleteJob": Method(pb.CompleteJobRequest, OUTCOME, _complete_job, audited=_ended),
    "FailJob": Method(
        pb.FailJobRequest, OUTCOME, _ending("fail_job", pb.FailJobResponse), audited=_ended
    ),
    "StopJob": Method(
        pb.StopJobRequest, OUTCOME, _ending("stop_job", pb.StopJobResponse), audited=_ended
    ),
    "StopJobWithRetry": Method(
        pb.StopJobWithRetryRequest,
        OUTCOME,
        _ending("stop_job_with_retry", pb.StopJobWithRetryResponse),
        audited=_ended,
    ),
    "MarkJobUnknownStopped": Method(
        pb.MarkJobUnknownStoppedRequest,
        OUTCOME,
        _ending("mark_job_unknown_stopped", pb.MarkJobUnknownStoppedResponse),
        audited=_ended,
    ),
    "AcknowledgeCancellation": Method(
        pb.AcknowledgeCancellationRequest, OUTCOME, _acknowledge_cancellation, audited=_ended
    ),
    "ReturnJobs": Method(
        pb.ReturnJobsRequest,
        OUTCOME,
        _return_jobs,
        audited=_given_back,
        counted=_numbers_of_held,
    ),
    "CancelJobs": Method(
        pb.CancelJobsRequest,
        Right("update"),
        _cancel_jobs,
        audited=_selected,
        counted=_numbers_of_ids,
    ),
    "SuspendJobs": Method(
        pb.SuspendJobsRequest,
        Right("update"),
        _suspend_jobs,
        audited=_suspended,
        counted=_numbers_of_named,
    ),
    "GetJob": Method(pb.GetJobRequest, Right("get"), _get_job),
    "GetJobStats": Method(
        pb.GetJobStatsRequest, Right("list"), _get_job_stats, counted=_numbers_of_tags
    ),
    "DeleteJobs": Method(
        pb.DeleteJobsRequest,
        Right("delete"),
        _delete_jobs,
        audited=_selected,
        counted=_numbers_of_ids,
    ),
    "CleanupExpiredJobs": Method(
        pb.CleanupExpiredJobsRequest,
        Right("deletecollection"),
        _cleanup_expired_jobs,
        _of_all_where_asked,
        _of_namespaces,
    ),
    "ResetRunningJobs": Method(
        pb.ResetRunningJobsRequest,
        Right("deletecollection"),
        _reset_running_jobs,
        _of_all_where_asked,
        _of_namespaces,
    ),
    "MarkWorkerUnresponsive": Method(
        pb.MarkWorkerUnresponsiveRequest,
        Right("delete", QUEUE_WORKERS),
        _mark_worker_unresponsive,
        lambda request, namespace: EVERYWHERE,
        lambda request: {"filter": {"assignee_id": request.assignee_id}},
    ),
}
