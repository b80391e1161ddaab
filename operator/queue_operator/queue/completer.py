"""Outcomes of all streams, settled together; each caller is answered after the commit."""

import asyncio
import random
from collections.abc import Callable, Sequence

from queue_operator.backends.protocol import Backend
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.domain.job import Assignment
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event
from queue_operator.queue.coalescer import Coalescer

NOT_DELIVERED = ErrorInfo(
    message="context cancelled: the stream ended before the job was delivered",
    category=ErrorCategory.SYSTEM,
    code="NOT_DELIVERED",
)
CANCELLED_UNDELIVERED = ErrorInfo(
    message="cancelled before the job was delivered to its worker",
    category=ErrorCategory.SYSTEM,
    code="CANCELLED",
)


class Completer:
    """`on_settled` hears of every statement's answers, in order, before its callers do."""

    def __init__(
        self,
        backend: Backend,
        on_settled: Callable[[Sequence[Outcome], Sequence[Settled]], None],
        *,
        max_batch: int,
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._on_settled = on_settled
        self._coalescer: Coalescer[Outcome, Settled] = Coalescer(
            "settling outcomes", self._settle, _refused, max_batch=max_batch, clock=clock, rng=rng
        )
        self.start = self._coalescer.start
        self.stop = self._coalescer.stop

    async def submit(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Answers in the order of `outcomes`. Waits while too much is pending."""
        return await self._coalescer.submit(outcomes)

    def release(self, outcomes: Sequence[Outcome]) -> "asyncio.Future[list[Settled]]":
        """Puts outcomes of the queue itself in line at once; they never wait for room."""
        return self._coalescer.offer(outcomes)

    async def _settle(self, outcomes: Sequence[Outcome]) -> Sequence[Settled]:
        settled = await self._backend.settle(outcomes)
        self._on_settled(outcomes, settled)
        return settled


def _refused(outcome: Outcome, error: Exception) -> Settled:
    known = error if isinstance(error, QueueError) else QueueError(f"not stored: {error}")
    return Settled(outcome.job_id, outcome.namespace, error=known)


def undelivered(job_id: str, namespace: str, token: str) -> Outcome:
    """RELEASE of a job that no worker ever saw; STOP where it is being cancelled."""
    return Outcome(job_id, Event.RELEASE, namespace, token, error=NOT_DELIVERED, worker_plane=True)


def unseen(job: Assignment, after_s: float | None) -> Outcome:
    """`undelivered`, claimable again after a while; a suspect keeps the error that tells of it."""
    outcome = undelivered(job.job_id, job.namespace, job.token)
    return outcome._replace(error=None, retry_after_s=after_s) if job.alone else outcome


def lost(job_id: str, namespace: str, token: str) -> Outcome:
    """LOSE of a job whose worker is gone: its attempt counts, for a handler may have begun it."""
    return Outcome(job_id, Event.LOSE, namespace, token)


def cancelled_undelivered(job_id: str, namespace: str, token: str) -> Outcome:
    """STOP of a job that was cancelled before its worker saw it."""
    return Outcome(
        job_id, Event.STOP, namespace, token, error=CANCELLED_UNDELIVERED, worker_plane=True
    )
