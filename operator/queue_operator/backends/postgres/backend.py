"""The Postgres backend: the contract of `backends.protocol`, each method handed to the part
that does it. Arguments are checked here, announcements made here, after the commit.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.postgres.cancel_inbox import CancelInboxStore
from queue_operator.backends.postgres.claiming import Claims, Marks
from queue_operator.backends.postgres.connection import Pool, borrowed, open_pool
from queue_operator.backends.postgres.depth import DepthStore
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.leases import Leases
from queue_operator.backends.postgres.migrate import check_schema
from queue_operator.backends.postgres.mirror import MirrorStore
from queue_operator.backends.postgres.progress import ProgressStore
from queue_operator.backends.postgres.reading import Reader
from queue_operator.backends.postgres.rows import storable_token
from queue_operator.backends.postgres.selection import Selection
from queue_operator.backends.postgres.sessions import SessionStore
from queue_operator.backends.postgres.settling import Settling
from queue_operator.backends.postgres.signals import Announcer, Listener
from queue_operator.backends.postgres.submission import Submission
from queue_operator.backends.protocol import (
    Freed,
    MirrorEntry,
    ProgressReport,
    QueueDepth,
    Topic,
    WorkerSession,
)
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import (
    DEFAULT_NAMESPACE,
    Assignment,
    Cancelled,
    Demand,
    Job,
    JobStats,
    TypeDefaults,
)
from queue_operator.domain.lease import Held, LeaseAnswer, Lost
from queue_operator.domain.outcome import ErrorInfo, Outcome, Settled
from queue_operator.domain.states import ELIGIBLE, Event, JobState
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    Limits,
    check_batch,
    check_bytes,
    check_job,
    check_positive,
    check_tags,
    check_text,
)

_CONFIRM: Final = load(__package__, "cancel_confirm")
_STALE_SESSION_S: Final = 3600.0
_REASON_CHARACTERS: Final = 1024
_MESSAGE_CHARACTERS: Final = 8192


class PostgresBackend:
    """Backend, Signals, CancelInbox, ResourceMirror, Sessions, ProgressSink and Depths."""

    def __init__(
        self,
        dsn: str,
        pool: Pool,
        *,
        limits: Limits = DEFAULT_LIMITS,
        cancel_timeout_s: float = 30.0,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._lanes = Lanes(pool)
        marks = Marks()
        self._announcer = Announcer(pool)
        self._listener = Listener(dsn, pool)
        self._submission = Submission(pool, self._lanes, marks)
        self._claims = Claims(pool, self._lanes, marks)
        self._settling = Settling(pool, self._lanes, marks, rng, limits.result_bytes)
        self._leases = Leases(pool, self._lanes, marks, rng, cancel_timeout_s)
        self._selection = Selection(pool, self._lanes, rng)
        self._reader = Reader(pool)
        self._depths = DepthStore(pool)
        self._mirror = MirrorStore(pool)
        self._sessions = SessionStore(pool, self._announcer)
        self._progress = ProgressStore(pool)
        self._inbox = CancelInboxStore(pool)
        self._stager: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        pool_size: int = 8,
        limits: Limits = DEFAULT_LIMITS,
        cancel_timeout_s: float = 30.0,
        connect_timeout_s: float = 5.0,
        statement_timeout_s: float = 30.0,
        rng: Callable[[], float] = random.random,
    ) -> Self:
        """Connects and checks the schema.

        Raises Unavailable when the server cannot be reached or the schema is not up to date.
        """
        pool = await open_pool(
            dsn,
            size=pool_size,
            connect_timeout_s=connect_timeout_s,
            statement_timeout_s=statement_timeout_s,
        )
        try:
            async with borrowed(pool) as connection:
                await check_schema(connection)
        except BaseException:
            await pool.close()
            raise
        return cls(dsn, pool, limits=limits, cancel_timeout_s=cancel_timeout_s, rng=rng)

    # Submission

    async def enqueue_job(self, job: Job) -> str:
        check_job(job, self._limits)
        await self._submission.store_one(job)
        self._announcer.announce(Topic.READY)
        return job.id

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]:
        check_batch(jobs, self._limits)
        if jobs:
            await self._submission.store_all(jobs)
            self._announcer.announce(Topic.READY)
        return [job.id for job in jobs]

    async def take_in(self, jobs: Sequence[Job]) -> list[str]:
        check_batch(jobs, self._limits)
        if not jobs:
            return []
        new = [jobs[place].id for place in await self._submission.store_new(jobs)]
        self._announcer.announce(Topic.READY, Topic.MIRROR)
        return new

    # Assignment

    async def dequeue_jobs(
        self,
        assignee_id: str,
        tags: Collection[str],
        limit: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        lease_ttl_s: float | None = None,
    ) -> list[Job]:
        check_text("assignee_id", assignee_id, self._limits.id_characters)
        check_tags("tags", tags, self._limits)
        check_positive("limit", limit)
        if lease_ttl_s is not None:
            check_positive("lease_ttl_s", lease_ttl_s)
        demand = Demand(
            assignee_id=assignee_id, limit=limit, namespace=namespace, tags=frozenset(tags)
        )
        claimed = await self._claims.claim([demand], lease_ttl_s, {}, thorough=True)
        # Who calls this may not listen, and then nobody else makes delayed jobs due.
        if len(claimed) < limit and await self._leases.stage():
            rest = replace(demand, limit=limit - len(claimed))
            claimed += await self._claims.claim([rest], lease_ttl_s, {}, thorough=True)
        self._announcer.announce(Topic.MIRROR)
        namespace_id = await self._lanes.namespace_id(namespace)
        if not claimed or namespace_id is None:
            return []
        jobs = await self._reader.by_id(namespace_id, [a.job_id for a in claimed])
        return [jobs[a.job_id] for a in claimed if a.job_id in jobs]

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        check_positive("lease_ttl_s", lease_ttl_s)
        for demand in demands:
            check_text("assignee_id", demand.assignee_id, self._limits.id_characters)
            check_positive("limit", demand.limit)
        claimed = await self._claims.claim(demands, lease_ttl_s, defaults or {})
        if claimed:
            self._announcer.announce(Topic.MIRROR)
        return claimed

    # Outcomes

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        settled = await self._settling.settle(outcomes)
        waiting = any(answer.state in ELIGIBLE for answer in settled)
        self._announcer.announce(Topic.MIRROR, *([Topic.READY] if waiting else []))
        return settled

    async def complete_job(
        self,
        job_id: str,
        result: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        check_bytes("result", result, self._limits.result_bytes)
        return await self._settle_one(job_id, namespace, token, Event.COMPLETE, result=result)

    async def fail_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        check_text("error_msg", error_msg[:_MESSAGE_CHARACTERS], _MESSAGE_CHARACTERS)
        return await self._settle_one(job_id, namespace, token, Event.FAIL, message=error_msg)

    async def stop_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        return await self._settle_one(job_id, namespace, token, Event.STOP, message=error_msg)

    async def stop_job_with_retry(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        return await self._settle_one(
            job_id, namespace, token, Event.STOP_WITH_RETRY, message=error_msg
        )

    async def mark_job_unknown_stopped(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        job = await self.get_job(job_id, namespace=namespace)
        if job.state is JobState.UNKNOWN_STOPPED:
            return {}
        return await self._settle_one(
            job_id, namespace, token, Event.MARK_UNKNOWN_STOPPED, message=error_msg
        )

    async def _settle_one(
        self,
        job_id: str,
        namespace: str,
        token: str | None,
        event: Event,
        *,
        result: bytes | None = None,
        message: str | None = None,
    ) -> Freed:
        check_text("job_id", job_id, self._limits.id_characters)
        if message is not None:
            # A long message is no reason to leave a job running: it is cut.
            message = message[:_MESSAGE_CHARACTERS]
            check_text("error_msg", message, _MESSAGE_CHARACTERS, required=False)
        outcome = Outcome(
            job_id,
            event,
            namespace=namespace,
            token=token,
            result=result,
            error=None if message is None else ErrorInfo(message),
        )
        [answer] = await self.settle([outcome])
        if answer.error is not None:
            raise answer.error
        return {answer.freed_assignee_id: 1} if answer.freed_assignee_id else {}

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
        self._check_selection(tags, job_ids)
        check_text("reason", reason, _REASON_CHARACTERS, required=False)
        cancelled = await self._selection.cancel(namespace, tags, job_ids, force, reason)
        self._announcer.announce(Topic.CANCEL, Topic.MIRROR)
        return cancelled

    async def acknowledge_cancellation(
        self,
        job_id: str,
        was_executing: bool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        event = Event.ACK_EXECUTING if was_executing else Event.ACK_UNKNOWN
        await self._settle_one(job_id, namespace, token, event)

    async def pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled:
        return await self._inbox.pending_cancels(assignee_ids)

    async def confirm_cancels(self, received: Sequence[Held]) -> None:
        parameters = {
            "namespaces": [await self._lanes.namespace_id(held.namespace) for held in received],
            "ids": [held.job_id for held in received],
            "tokens": [storable_token(held.token) for held in received],
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(_CONFIRM, parameters)

    # Workers and leases

    async def mark_worker_unresponsive(self, assignee_id: str) -> Freed:
        check_text("assignee_id", assignee_id, self._limits.id_characters)
        freed = await self._leases.lose(assignee_id=assignee_id, namespace_id=None)
        self._announcer.announce(Topic.READY, Topic.MIRROR)
        return freed

    async def extend_leases(self, held: Sequence[Held], *, lease_ttl_s: float) -> list[LeaseAnswer]:
        check_positive("lease_ttl_s", lease_ttl_s)
        return await self._leases.extend(held, lease_ttl_s)

    async def expire_leases(self, *, lease_ttl_s: float, limit: int = 1000) -> list[Lost]:
        check_positive("lease_ttl_s", lease_ttl_s)
        check_positive("limit", limit)
        lost = await self._leases.expire(lease_ttl_s, limit)
        await self._depths.fold()
        await self._sessions.prune_sessions(_STALE_SESSION_S)
        if lost:
            self._announcer.announce(Topic.READY, Topic.MIRROR)
        return lost

    # Queries

    async def get_job(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Job:
        check_text("job_id", job_id, self._limits.id_characters)
        namespace_id = await self._lanes.namespace_id(namespace)
        found = {} if namespace_id is None else await self._reader.by_id(namespace_id, [job_id])
        if job_id not in found:
            raise JobNotFound(job_id, namespace)
        return found[job_id]

    async def get_job_stats(
        self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> JobStats:
        check_tags("tags", tags, self._limits)
        return await self._depths.stats(tags, namespace=namespace)

    async def queue_depth(self) -> QueueDepth:
        return await self._depths.queue_depth()

    # Maintenance

    async def reset_running_jobs(self, *, namespace: str | None = None) -> Freed:
        namespace_id = None if namespace is None else await self._lanes.namespace_id(namespace)
        if namespace is not None and namespace_id is None:
            return {}
        freed = await self._leases.lose(assignee_id=None, namespace_id=namespace_id)
        self._announcer.announce(Topic.READY, Topic.MIRROR)
        return freed

    async def cleanup_expired_jobs(self, ttl_s: float, *, namespace: str | None = None) -> int:
        check_positive("ttl", ttl_s)
        namespace_id = None if namespace is None else await self._lanes.namespace_id(namespace)
        if namespace is not None and namespace_id is None:
            return 0
        return await self._selection.cleanup(ttl_s, namespace_id)

    async def delete_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        self._check_selection(tags, job_ids)
        return await self._selection.delete(namespace, tags, job_ids)

    def _check_selection(self, tags: Collection[str], job_ids: Collection[str]) -> None:
        check_tags("tags", tags, self._limits)
        for job_id in job_ids:
            check_text("job_ids", job_id, self._limits.id_characters)
        if not tags and not job_ids:
            raise InvalidArgument("job_ids", "give tags or ids: both empty would select all")

    # Resources

    async def detach(self, uids: Collection[str]) -> None:
        await self._selection.detach(uids)
        self._announcer.announce(Topic.CANCEL)

    async def attached(self, cluster_uid: str) -> list[tuple[str, str]]:
        return await self._mirror.attached(cluster_uid)

    async def pending_mirrors(self, limit: int = 500) -> list[MirrorEntry]:
        return await self._mirror.pending_mirrors(limit)

    async def acknowledge_mirrors(self, sequences: Collection[int]) -> None:
        await self._mirror.acknowledge_mirrors(sequences)

    # Sessions, progress, signals

    async def open_session(self, session: WorkerSession) -> None:
        await self._sessions.open_session(session)

    async def touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        await self._sessions.touch_sessions(sessions)

    async def close_sessions(self, session_ids: Collection[str]) -> None:
        await self._sessions.close_sessions(session_ids)

    async def list_sessions(self, *, max_age_s: float | None = None) -> list[WorkerSession]:
        return await self._sessions.list_sessions(max_age_s=max_age_s)

    async def record_progress(self, reports: Sequence[ProgressReport]) -> None:
        await self._progress.record_progress(reports)

    def listen(self) -> AsyncIterator[frozenset[Topic]]:
        """Also starts to stage delayed jobs: who listens for READY wants them in time."""
        if self._stager is None:
            announce = self._announcer.announce
            self._stager = asyncio.create_task(
                self._leases.keep_staging(lambda: announce(Topic.READY))
            )
        return self._listener.listen()

    # Lifecycle

    async def ping(self) -> None:
        async with borrowed(self._pool) as connection:
            await connection.execute("SELECT 1")

    async def close(self) -> None:
        if self._stager is not None:
            await end_tasks([self._stager])
        await self._announcer.aclose()
        await self._pool.close()
