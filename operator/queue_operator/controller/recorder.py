"""Kubernetes Events on QueueJobs, for what somebody would act on; none for normal progress."""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.backlog import Write
from queue_operator.controller.kube import ApiError, KubeClient
from queue_operator.controller.pacing import TokenBucket
from queue_operator.crd.conditions import OVER_QUOTA
from queue_operator.crd.names import API_VERSION, QUEUE_JOB
from queue_operator.crd.v1alpha1 import QueueJobStatus, ResourcePhase
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.states import JobState

logger = logging.getLogger(__name__)

COMPONENT: Final = "queue-operator"
EVENTS_PER_S: Final = 20.0
WAITING: Final = 1000
"""Events that wait to be written. What comes above that is dropped: the statuses tell it."""
_THROTTLE_S: Final = 1.0
_NAME: Final = 200
_MESSAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Notice:
    """What an Event says: `kind` is Normal or Warning, `reason` one word."""

    kind: str
    reason: str
    message: str


def notice_of(status: QueueJobStatus) -> Notice | None:
    """What somebody would act on. None for all that goes as it should."""
    said = f": {status.message}" if status.message else ""
    tries = f"attempt {status.attempt}"
    if status.max_attempts:
        tries += f" of {status.max_attempts}"
    match status.state:
        case None if status.phase is ResourcePhase.REJECTED:
            return Notice("Warning", "JobRejected", f"{status.reason}{said}")
        case None if status.reason == OVER_QUOTA:
            return Notice("Warning", OVER_QUOTA, status.message or "")
        case JobState.UNKNOWN_RETRY:
            told = f"worker {status.worker} was lost at {tries}; the job is run again"
            return Notice("Warning", "WorkerLost", told)
        case JobState.DEAD_LETTER:
            is_final = status.phase is ResourcePhase.FAILED
            reason = "JobFailed" if is_final else "JobDeadLettered"
            return Notice("Warning", reason, f"{status.reason} at {tries}{said}")
        case JobState.STOPPED | JobState.UNSCHEDULED:
            return Notice("Normal", "JobCancelled", f"{status.reason}{said}")
        case JobState.UNKNOWN_STOPPED:
            told = f"worker {status.worker} never confirmed that the job stopped{said}"
            return Notice("Warning", "StopUnconfirmed", told)
    return None


class EventRecorder:
    """Writes Events behind the statuses, slowly, and drops them rather than hold anything up. What
    is told again after a restart has the same name, and is stored once.
    """

    def __init__(self, kube: KubeClient, clock: Clock, rate_per_s: float = EVENTS_PER_S) -> None:
        self._kube = kube
        self._bucket = TokenBucket(rate_per_s, clock, burst_s=2.0)
        self._waiting: deque[dict[str, Any]] = deque()
        self._some = asyncio.Event()
        self._is_dropping = False
        self._is_failing = False

    def record(self, write: Write, status: QueueJobStatus) -> None:
        """After `status` was written."""
        notice = notice_of(status)
        if notice is None:
            return
        if len(self._waiting) >= WAITING:
            if not self._is_dropping:
                logger.warning(
                    "more Events than can be written; the statuses tell what they leave out"
                )
            self._is_dropping = True
            return
        self._is_dropping = False
        self._waiting.append(_event(write, status, notice, datetime.now(UTC)))
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                await self._bucket.take()
                await self._write(self._waiting.popleft())

    async def _write(self, event: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        try:
            await self._kube.create(path, event)
        except ApiError as error:
            if error.retryable:
                self._bucket.throttled(error.retry_after_s or _THROTTLE_S)
            # It is there already, or its namespace goes.
            if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                self._failed(error)
        except Unavailable as error:
            self._bucket.throttled(_THROTTLE_S)
            self._failed(error)
        else:
            self._is_failing = False
            self._bucket.succeeded()

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            logger.warning("an Event could not be written, and is left out: %s", error)
        self._is_failing = True


def _event(write: Write, status: QueueJobStatus, notice: Notice, now: datetime) -> dict[str, Any]:
    resource = write.resource
    number = status.transition if status.transition is not None else status.observed_generation
    at = (status.finalized_at or now).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": write.namespace,
            "name": f"{resource.name[:_NAME]}.{write.uid[:8]}.{notice.reason.lower()}-{number}",
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": QUEUE_JOB.kind,
            "namespace": write.namespace,
            "name": resource.name,
            "uid": write.uid,
        },
        "type": notice.kind,
        "reason": notice.reason,
        "message": notice.message[:_MESSAGE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
