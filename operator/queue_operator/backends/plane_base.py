"""The arguments of the calls in `backends.plane`, checked alike for every store."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

from queue_operator.backends.owners import Owners
from queue_operator.backends.protocol import ProgressReport
from queue_operator.domain.errors import InvalidArgument, JobNotFound, QueueError
from queue_operator.domain.ids import spawned_id
from queue_operator.domain.job import DEFAULT_NAMESPACE, Cancelled, Job, Submitted
from queue_operator.domain.lease import Held
from queue_operator.domain.log_cursor import FROM_THE_START, LogCursor
from queue_operator.domain.running import (
    AttemptLog,
    CheckpointAnswer,
    CheckpointReport,
    LogReport,
    SpawnRequest,
)
from queue_operator.domain.validation import (
    Limits,
    check_bytes,
    check_held,
    check_job,
    check_kind,
    check_limit,
    check_lines,
    check_progress,
    check_sequence,
    check_text,
    check_texts,
    check_token,
)

SPAWN = "SPAWN"
"""What a parent that is being cancelled may no longer do; no event of the state table."""
_MAX_NUMBER = 2**63 - 1


class PlaneBase(ABC):
    """Checkpoints, Spawner, JobLogs, CancelInbox and ProgressSink, but for the storage itself."""

    _limits: Limits
    _owners: Owners

    async def store_checkpoints(
        self, reports: Sequence[CheckpointReport]
    ) -> list[CheckpointAnswer]:
        check_sequence("reports", reports)
        good: dict[int, CheckpointReport] = {}
        answers: dict[int, CheckpointAnswer] = {}
        for place, report in enumerate(reports):
            if not isinstance(report, CheckpointReport):
                raise InvalidArgument(f"reports[{place}]", "must be a CheckpointReport")
            try:
                self._check_checkpoint(report)
                good[place] = report
            except InvalidArgument as error:
                answers[place] = refused(report, error)
        heard = await self._owners.heard(list(good.values()))
        stored = await self._store_checkpoints(heard) if good else []
        answers |= zip(good, stored, strict=True)
        return [answers[place] for place in range(len(reports))]

    def _check_checkpoint(self, report: CheckpointReport) -> None:
        for name in ("job_id", "namespace"):
            check_text(name, getattr(report, name), self._limits.id_characters)
        check_token("token", report.token)
        check_limit("number", report.number, _MAX_NUMBER)
        check_bytes("checkpoint", report.data, self._limits.checkpoint_bytes)

    @abstractmethod
    async def _store_checkpoints(
        self, reports: Sequence[CheckpointReport]
    ) -> list[CheckpointAnswer]: ...

    async def spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        check_sequence("requests", requests)
        first: dict[tuple[str, str, str, str], int] = {}
        good: dict[int, SpawnRequest] = {}
        answers: dict[int, Submitted] = {}
        for place, request in enumerate(requests):
            if not isinstance(request, SpawnRequest):
                raise InvalidArgument(f"requests[{place}]", "must be a SpawnRequest")
            try:
                complete = self._complete(request)
            except InvalidArgument as error:
                answers[place] = Submitted(job_id=getattr(request.job, "id", ""), error=error)
                continue
            if first.setdefault(_child(complete), place) == place:
                good[place] = complete
        heard = await self._owners.heard(list(good.values()))
        stored = await self._spawn(heard) if good else []
        answers |= zip(good, stored, strict=True)
        for place, request in enumerate(requests):
            if place not in answers:
                # Said twice, as when the answer to the first was lost.
                answer = answers[first[_child(request)]]
                answers[place] = replace(answer, duplicate=answer.error is None)
        return [answers[place] for place in range(len(requests))]

    def _complete(self, request: SpawnRequest) -> SpawnRequest:
        for name in ("parent_id", "namespace", "key"):
            check_text(name, getattr(request, name), self._limits.id_characters)
        check_token("token", request.token)
        check_kind("job", request.job, Job)
        made = spawned_id(request.namespace, request.parent_id, request.key)
        job = replace(request.job, namespace=request.namespace, id=request.job.id or made)
        check_job(job, self._limits)
        return replace(request, job=replace(job, spawned_by=request.parent_id))

    @abstractmethod
    async def _spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        """No child twice. Their jobs are complete but for an inherited correlation id."""

    async def append_logs(self, reports: Sequence[LogReport]) -> None:
        check_sequence("reports", reports)
        for place, report in enumerate(reports):
            if not isinstance(report, LogReport):
                raise InvalidArgument(f"reports[{place}]", "must be a LogReport")
            for name in ("job_id", "namespace"):
                check_text(
                    f"reports[{place}].{name}", getattr(report, name), self._limits.id_characters
                )
            check_token(f"reports[{place}].token", report.token)
            check_lines(f"reports[{place}].lines", report.lines)
        if some := [report for report in reports if report.lines]:
            await self._append_logs(await self._owners.heard(some))

    async def job_log(
        self,
        job_id: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        after: LogCursor = FROM_THE_START,
    ) -> list[AttemptLog]:
        check_text("job_id", job_id, self._limits.id_characters)
        check_text("namespace", namespace, self._limits.id_characters)
        check_kind("after", after, LogCursor)
        found = await self._job_log(namespace, job_id, after)
        if found is None:
            raise JobNotFound(job_id, namespace)
        return found

    async def record_progress(self, reports: Sequence[ProgressReport]) -> None:
        check_sequence("reports", reports)
        for place, report in enumerate(reports):
            self._check_progress(f"reports[{place}]", report)
        await self._record_progress(await self._owners.heard(reports))

    def _check_progress(self, place: str, report: ProgressReport) -> None:
        if not isinstance(report, ProgressReport):
            raise InvalidArgument(place, "must be a ProgressReport")
        for name in ("job_id", "namespace"):
            check_text(f"{place}.{name}", getattr(report, name), self._limits.id_characters)
        check_token(f"{place}.token", report.token)
        check_progress(f"{place}.progress", report.progress)

    async def pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled:
        check_texts("assignee_ids", assignee_ids, self._limits.id_characters)
        return await self._pending_cancels(assignee_ids) if assignee_ids else Cancelled()

    async def confirm_cancels(self, received: Sequence[Held]) -> None:
        check_sequence("received", received)
        for place, held in enumerate(received):
            check_held(place, held, self._limits, "received")
        await self._confirm_cancels(await self._owners.heard(received))

    @abstractmethod
    async def _pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled: ...

    @abstractmethod
    async def _record_progress(self, reports: Sequence[ProgressReport]) -> None: ...

    @abstractmethod
    async def _confirm_cancels(self, received: Sequence[Held]) -> None: ...

    @abstractmethod
    async def _append_logs(self, reports: Sequence[LogReport]) -> None: ...

    @abstractmethod
    async def _job_log(
        self, namespace: str, job_id: str, after: LogCursor
    ) -> list[AttemptLog] | None:
        """None when there is no such job."""


def _child(request: SpawnRequest) -> tuple[str, str, str, str]:
    return request.namespace, request.parent_id, request.token, request.key


def stored(report: CheckpointReport, cancelled: bool, forced: bool) -> CheckpointAnswer:
    return CheckpointAnswer(
        job_id=report.job_id,
        namespace=report.namespace,
        cancel_requested=cancelled,
        cancel_forced=cancelled and forced,
    )


def refused(report: CheckpointReport, error: QueueError) -> CheckpointAnswer:
    return CheckpointAnswer(job_id=report.job_id, namespace=report.namespace, error=error)
