"""`queue.protocol.Queue` of another process."""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, Self

from google.protobuf.message import Message

from queue_operator.client.credentials import Token
from queue_operator.client.grpc import arguments
from queue_operator.client.grpc.calls import Answer, Calls, DoneBefore
from queue_operator.client.grpc.line import Line
from queue_operator.client.grpc.retrying import Repeats
from queue_operator.client.grpc.stream import GrpcStream, Reading
from queue_operator.client.grpc.submissions import Submissions
from queue_operator.client.grpc.watching import GrpcEvents, Listening, Watched
from queue_operator.domain.errors import DuplicateJob, Forbidden, JobNotFound, QueueError
from queue_operator.domain.job import DEFAULT_NAMESPACE, Cancelled, Job, JobStats
from queue_operator.domain.views import Phase
from queue_operator.tracing.current import in_trace
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.clear import host_of_target, warn_of_token
from queue_operator.wire.tls import ClientTls
from queue_operator.wire.v1 import queue_pb2 as pb

logger = logging.getLogger(__name__)

_content = attrgetter("type", "payload", "content_type", "tags", "correlation_id", "depends_on")
_COMPARED_AT_ONCE: Final = 16


class GrpcQueue:
    """The queue behind `address` (host:port). Its methods are those of the queue in process,
    and raise the same errors; one that does not answer raises Unavailable.

    `token` is sent with every call and asked for before each. `timeout_s` bounds each call,
    repeats included; `within` gives the same queue with another bound. With `tls` the
    connection is encrypted; its files are read again when they change. While the server
    cannot be reached, calls are repeated as `repeats` says if a repeat changes nothing: reads,
    submissions, and outcomes that carry a token. `keepalive_s` is how long a silent connection
    is believed in; one that is dead ends the streams on it within one and a half times that.

    `close` ends this client's streams and its connection, not the queue. A fork of the process
    cannot use it: every call raises WrongProcess there.
    """

    def __init__(
        self,
        address: str,
        token: Token = None,
        *,
        timeout_s: float = 30.0,
        tls: ClientTls | None = None,
        repeats: Repeats | None = None,
        keepalive_s: float = 3.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        arguments.address(address)
        if token is not None and tls is None:
            warn_of_token(logger, address, host_of_target(address), "give tls=ClientTls(...)")
        line = Line(address, tls, keepalive_s)
        self._calls = Calls(line, token, timeout_s, repeats or Repeats(), sleep)
        self._submissions = Submissions(self._calls, self._has)
        self._readings: weakref.WeakSet[Reading | Listening] = weakref.WeakSet()

    def within(self, timeout_s: float) -> "GrpcQueue":
        """The same queue, over the same connection, with another deadline for each call."""
        other = object.__new__(GrpcQueue)
        other._calls = self._calls.within(timeout_s)
        other._submissions = Submissions(other._calls, other._has)
        other._readings = self._readings
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Streams end and give back what nobody took; every later call raises Unavailable. In a
        fork of the process that made it there is nothing to close.
        """
        if self._calls.line.birthplace.is_elsewhere:
            return
        await asyncio.gather(*(reading.close() for reading in list(self._readings)))
        await self._calls.line.close()
        await self._submissions.close()

    # Submission

    async def enqueue_job(self, job: Job) -> str:
        """Shares a call with others that are made meanwhile."""
        arguments.job(job)
        [job] = in_trace([job])
        return await self._submissions.store(job)

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]:
        """All or none."""
        arguments.jobs(jobs)
        jobs = in_trace(jobs)
        stored = pb.EnqueueJobsResponse(job_ids=[job.id for job in jobs])
        try:
            answer = await self._calls.ask(
                "EnqueueJobs",
                pb.EnqueueJobsRequest(jobs=[convert.job_to_wire(job) for job in jobs]),
                pb.EnqueueJobsResponse,
                repeatable=True,
                done_before=self._if_stored(jobs, stored),
            )
        except DuplicateJob as error:
            taken = tuple(jobs[index].id for index in error.indexes)
            raise DuplicateJob(taken, error.indexes) from None
        return list(answer.job_ids)

    def _if_stored(self, jobs: Sequence[Job], answer: Answer) -> DoneBefore[Answer]:
        """`answer`, where ids are taken because an earlier try had stored these very jobs."""

        async def ask(error: QueueError) -> Answer | None:
            if not isinstance(error, DuplicateJob) or len(error.indexes) < len(jobs):
                return None
            for start in range(0, len(jobs), _COMPARED_AT_ONCE):
                some = jobs[start : start + _COMPARED_AT_ONCE]
                if not all(await asyncio.gather(*map(self._has, some))):
                    return None
            return answer

        return ask

    async def _has(self, job: Job) -> bool:
        """Whether the queue has just this job; one that the caller may not read is not known."""
        try:
            stored = await self.get_job(job.id, namespace=job.namespace)
        except (JobNotFound, Forbidden):
            return False
        return bool(_content(stored) == _content(job))

    # Streams

    def stream_jobs(
        self,
        assignee_id: str,
        tags: Collection[str],
        max_assigned_jobs: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> GrpcStream:
        """Batches of jobs as they are assigned, at most so many at a time."""
        arguments.text("assignee_id", assignee_id)
        arguments.text("namespace", namespace)
        arguments.count("max_assigned_jobs", max_assigned_jobs)
        request = pb.StreamJobsRequest(
            assignee_id=assignee_id,
            tags=arguments.texts("tags", tags),
            max_assigned_jobs=max_assigned_jobs,
        )
        reading = Reading(self._calls, request, namespace)
        self._readings.add(reading)
        return GrpcStream(reading)

    def watch(
        self,
        job_id: str | None = None,
        *,
        types: Iterable[str] = (),
        states: Iterable[Phase] = (),
        tags: Mapping[str, str] | None = None,
        follow: bool = False,
        after: str | None = None,
        poll_s: float = 2.0,
        outage_s: float = 60.0,
        on_gap: Callable[[str], None] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> GrpcEvents:
        """What happens, as it does: to one job, how it is now first, until it has ended or, to
        `follow` it, on and on; else to all jobs of any of `types` that come to any of `states` and
        have all `tags`. Each event has a `position`, and `after` one of them the stream goes on.

        It survives restarts of the server and misses nothing. Where a position is older than what
        the server keeps, it begins anew, and `on_gap` is told; without it a warning is logged.
        Where the server has no streams, it looks at the one job every `poll_s` seconds, and what
        comes and goes between two looks is missed; a filter raises QueueError there. Raises
        JobNotFound; Unavailable when the server cannot be reached for `outage_s`.
        """
        request = arguments.watch(job_id, types, states, tags, after, goes_on=bool(follow))
        arguments.text("namespace", namespace)
        get = None if job_id is None else lambda: self.get_job(job_id, namespace=namespace)
        listening = Listening(
            self._calls,
            Watched(
                namespace=namespace,
                request=request,
                get=get,
                poll_s=poll_s,
                outage_s=outage_s,
                on_gap=on_gap,
            ),
        )
        self._readings.add(listening)
        return GrpcEvents(listening)

    # Lifecycle

    async def complete_job(
        self,
        job_id: str,
        result: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        arguments.data("result", result)
        await self._settle(
            "CompleteJob",
            pb.CompleteJobResponse,
            job_id,
            namespace,
            token,
            lambda: pb.CompleteJobRequest(job_id=job_id, result=result, token=token),
        )

    async def fail_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        arguments.text("error_msg", error_msg, required=False)
        await self._settle(
            "FailJob",
            pb.FailJobResponse,
            job_id,
            namespace,
            token,
            lambda: pb.FailJobRequest(job_id=job_id, error_message=error_msg, token=token),
        )

    async def stop_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        arguments.text("error_msg", error_msg, required=False)
        await self._settle(
            "StopJob",
            pb.StopJobResponse,
            job_id,
            namespace,
            token,
            lambda: pb.StopJobRequest(job_id=job_id, error_message=error_msg, token=token),
        )

    async def stop_job_with_retry(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        arguments.text("error_msg", error_msg, required=False)
        await self._settle(
            "StopJobWithRetry",
            pb.StopJobWithRetryResponse,
            job_id,
            namespace,
            token,
            lambda: pb.StopJobWithRetryRequest(job_id=job_id, error_message=error_msg, token=token),
        )

    async def mark_job_unknown_stopped(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        arguments.text("error_msg", error_msg, required=False)
        await self._settle(
            "MarkJobUnknownStopped",
            pb.MarkJobUnknownStoppedResponse,
            job_id,
            namespace,
            token,
            lambda: pb.MarkJobUnknownStoppedRequest(
                job_id=job_id, error_message=error_msg, token=token
            ),
        )

    async def acknowledge_cancellation(
        self,
        job_id: str,
        was_executing: bool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        await self._settle(
            "AcknowledgeCancellation",
            pb.AcknowledgeCancellationResponse,
            job_id,
            namespace,
            token,
            lambda: pb.AcknowledgeCancellationRequest(
                job_id=job_id, was_executing=bool(was_executing), token=token
            ),
        )

    async def _settle(
        self,
        method: str,
        answer: type[Message],
        job_id: str,
        namespace: str,
        token: str | None,
        request: Callable[[], Message],
    ) -> None:
        """Under a token the queue knows a repeat when it sees one."""
        arguments.text("job_id", job_id)
        arguments.text("namespace", namespace)
        arguments.token(token)
        await self._calls.ask(
            method, request(), answer, namespace=namespace, repeatable=token is not None
        )

    # Cancellation

    async def cancel_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        force: bool = False,
        reason: str = "",
    ) -> Cancelled:
        """The answer has no `requests`: what workers are told is the server's to tell."""
        arguments.text("namespace", namespace)
        arguments.text("reason", reason, required=False)
        request = pb.CancelJobsRequest(
            tags=arguments.texts("tags", tags),
            job_ids=arguments.texts("job_ids", job_ids),
            force=bool(force),
            reason=reason,
        )
        answer = await self._calls.ask(
            "CancelJobs", request, pb.CancelJobsResponse, namespace=namespace
        )
        return Cancelled(tuple(answer.cancelled_job_ids), tuple(answer.unknown_job_ids))

    async def suspend_jobs(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        return await self._suspend(job_ids, namespace, resume=False)

    async def resume_jobs(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        return await self._suspend(job_ids, namespace, resume=True)

    async def _suspend(
        self, job_ids: Collection[str], namespace: str, *, resume: bool
    ) -> list[str]:
        arguments.text("namespace", namespace)
        named = arguments.texts("job_ids", job_ids)
        request = pb.SuspendJobsRequest(job_ids=named, resume=resume)
        answer = await self._calls.ask(
            "SuspendJobs",
            request,
            pb.SuspendJobsResponse,
            namespace=namespace,
            repeatable=True,
        )
        return list(answer.unknown_job_ids)

    # Workers

    async def mark_worker_unresponsive(self, assignee_id: str) -> None:
        arguments.text("assignee_id", assignee_id)
        request = pb.MarkWorkerUnresponsiveRequest(assignee_id=assignee_id)
        await self._calls.ask("MarkWorkerUnresponsive", request, pb.MarkWorkerUnresponsiveResponse)

    async def reset_running_jobs(self, *, namespace: str | None = None) -> None:
        request = pb.ResetRunningJobsRequest(all_namespaces=namespace is None)
        await self._ask_in(namespace, "ResetRunningJobs", request, pb.ResetRunningJobsResponse)

    # Queries

    async def get_job(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Job:
        arguments.text("job_id", job_id)
        arguments.text("namespace", namespace)
        answer = await self._calls.ask(
            "GetJob",
            pb.GetJobRequest(job_id=job_id),
            pb.GetJobResponse,
            namespace=namespace,
            repeatable=True,
        )
        return convert.job_from_wire(answer.job)

    async def get_job_stats(
        self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> JobStats:
        arguments.text("namespace", namespace)
        answer = await self._calls.ask(
            "GetJobStats",
            pb.GetJobStatsRequest(tags=arguments.texts("tags", tags)),
            pb.GetJobStatsResponse,
            namespace=namespace,
            repeatable=True,
        )
        return convert.stats_from_wire(answer.stats)

    # Maintenance

    async def cleanup_expired_jobs(self, ttl_s: float, *, namespace: str | None = None) -> int:
        arguments.ttl("ttl_s", ttl_s)
        request = pb.CleanupExpiredJobsRequest(
            ttl=convert.duration_to_wire(ttl_s), all_namespaces=namespace is None
        )
        answer = await self._ask_in(
            namespace, "CleanupExpiredJobs", request, pb.CleanupExpiredJobsResponse
        )
        return int(answer.deleted)

    async def delete_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        arguments.text("namespace", namespace)
        request = pb.DeleteJobsRequest(
            tags=arguments.texts("tags", tags), job_ids=arguments.texts("job_ids", job_ids)
        )
        answer = await self._calls.ask(
            "DeleteJobs", request, pb.DeleteJobsResponse, namespace=namespace
        )
        return answer.deleted

    async def _ask_in(
        self, namespace: str | None, method: str, request: Message, answer: type[Any]
    ) -> Any:
        """A call that concerns all namespaces unless it names one."""
        if namespace is not None:
            arguments.text("namespace", namespace)
        got = await self._calls.ask(method, request, answer, namespace=namespace)
        return got
