"""The Postgres backend: the contract of `backends.protocol`, each method handed to the part
that does it. Announcements are made here, after the commit.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from queue_operator.backends.base import BaseBackend
from queue_operator.backends.chances import SYSTEM, Entropy
from queue_operator.backends.lost_workers import Loss, LostWorker
from queue_operator.backends.news import News, about
from queue_operator.backends.plane_base import PlaneBase
from queue_operator.backends.postgres import arrivals
from queue_operator.backends.postgres.arrivals import Arrivals
from queue_operator.backends.postgres.assigned import leased, owners_of
from queue_operator.backends.postgres.cancel_inbox import CancelInboxStore
from queue_operator.backends.postgres.checkpoints import CheckpointStore
from queue_operator.backends.postgres.claiming import Claims
from queue_operator.backends.postgres.completing import Claimed, Completions
from queue_operator.backends.postgres.connection import Pool, borrowed, open_pool
from queue_operator.backends.postgres.counts import Counts
from queue_operator.backends.postgres.depth import DepthStore
from queue_operator.backends.postgres.exploring import Explorer
from queue_operator.backends.postgres.figures import FigureStore
from queue_operator.backends.postgres.finder import Finder
from queue_operator.backends.postgres.housekeeping import Housekeeping
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.leases import Leases
from queue_operator.backends.postgres.line import checked
from queue_operator.backends.postgres.logs import FoundLog, LogStore
from queue_operator.backends.postgres.migrate import check_schema
from queue_operator.backends.postgres.mirror import MirrorStore
from queue_operator.backends.postgres.one_loop import on_one_loop
from queue_operator.backends.postgres.probing import check_writable
from queue_operator.backends.postgres.progress import ProgressStore
from queue_operator.backends.postgres.pruning import Pruning
from queue_operator.backends.postgres.pulse import Pulse
from queue_operator.backends.postgres.reading import Reader
from queue_operator.backends.postgres.records import Records
from queue_operator.backends.postgres.reordering import Reordering
from queue_operator.backends.postgres.returning import Returns
from queue_operator.backends.postgres.roll_ups import RollUps
from queue_operator.backends.postgres.rows import storable_token
from queue_operator.backends.postgres.selection import Selection
from queue_operator.backends.postgres.sessions import SessionStore
from queue_operator.backends.postgres.settling import Settling
from queue_operator.backends.postgres.signals import Announcer
from queue_operator.backends.postgres.spawning import Spawning
from queue_operator.backends.postgres.staging import Staging
from queue_operator.backends.postgres.statistics import WindowStore
from queue_operator.backends.postgres.steering import Steering
from queue_operator.backends.postgres.submission import Submission
from queue_operator.backends.postgres.surveying import Surveying
from queue_operator.backends.postgres.upkeep import by_itself
from queue_operator.backends.postgres.usages import UsageStore
from queue_operator.backends.postgres.watching import Watching
from queue_operator.backends.postgres.webhooks import WebhookStore
from queue_operator.backends.protocol import (
    CheckpointAnswer,
    CheckpointReport,
    EventBatch,
    FailurePage,
    FailureSearch,
    Freed,
    JobHistory,
    JobPage,
    JobSearch,
    LogReport,
    MirrorEntry,
    ProgressReport,
    QueueDepth,
    SessionNews,
    SessionOrder,
    SessionRoll,
    SpawnRequest,
    StatsWindow,
    TakenIn,
    Topic,
    Usage,
    WindowStats,
    WorkerSession,
)
from queue_operator.backends.sessions_base import SessionsBase
from queue_operator.backends.sql import load
from queue_operator.domain.batch import check_batch
from queue_operator.domain.job import (
    Assignment,
    Cancelled,
    Demand,
    Job,
    JobStats,
    Submitted,
    TypeDefaults,
)
from queue_operator.domain.lease import Held, LeaseAnswer, Leased, Lost
from queue_operator.domain.log_cursor import LogCursor
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.overdue import CANCEL_TIMEOUT_S
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    Limits,
    check_flag,
    check_limit,
    check_numbers,
    check_text,
    check_texts,
    check_ttl,
)

logger = logging.getLogger(__name__)

_ROLL_UP_ROWS: Final = 1000
_CONFIRM: Final = load(__package__, "cancel_confirm")


@on_one_loop
class PostgresBackend(BaseBackend, PlaneBase, Steering, SessionsBase, Watching, Surveying):
    """Backend, Search, History, Failures, EventLog, Signals, CancelInbox, ResourceMirror,
    Sessions, ProgressSink, Checkpoints, Spawner, JobLogs, Depths, Pauses, Suspensions,
    Places, Statistics, Watching, Usages, Pooled and Surveyed. Calls from another event loop than
    it was opened on raise WrongLoop.
    """

    def __init__(
        self,
        listen_dsn: str | None,
        pool: Pool,
        *,
        limits: Limits = DEFAULT_LIMITS,
        cancel_timeout_s: float = CANCEL_TIMEOUT_S,
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        entropy: Entropy = SYSTEM,
    ) -> None:
        super().__init__(limits, cancel_timeout_s)
        self._pool = pool
        self._lanes = Lanes(pool)
        pool.on_history = self._lanes.note_history
        self._staging = Staging(pool)
        self._arrivals = Arrivals(
            pool,
            self._lanes,
            self._staging,
            resumed=lambda: self._pulse.resumed(),
            noted=lambda: self._explorer.revisit_in_time(),
        )
        self._explorer = Explorer(pool, self._arrivals)
        self._announcer = Announcer(pool, hear=lambda news: self._pulse.hear(news))
        self._pulse = Pulse(
            listen_dsn,
            pool,
            self._lanes,
            self._arrivals,
            self._staging,
            self._announcer,
            sleep=sleep,
            rng=rng,
        )
        self._submission = Submission(pool, self._lanes)
        claimed = Claimed()
        self._returns = Returns(pool, lambda given: self._settle(given), sleep)
        self._claims = Claims(
            pool, self._arrivals, self._explorer, claimed, self._returns, entropy=entropy
        )
        self._settling = Settling(pool, self._lanes, rng, Completions(pool, claimed), self._ready)
        self._leases = Leases(pool, self._lanes, rng, cancel_timeout_s, self._ready)
        self._selection = Selection(pool, self._lanes, rng)
        self._reader = Reader(pool)
        self._finder = Finder(pool)
        self._records = Records(pool, self._lanes)
        self._counts = Counts(pool)
        self._depths = DepthStore(pool, self._counts, self._arrivals.places)
        self._roll_ups = RollUps(pool)
        self._figures = FigureStore(pool, self._counts, self._depths)
        self._pruning = Pruning(pool)
        self.webhooks = WebhookStore(pool, limits)
        self._usages = UsageStore(pool, self._lanes, self._counts)
        self._windows = WindowStore(pool, self._lanes, self._roll_ups, self._counts)
        self._watch(pool, self._lanes, self._windows, self._counts, self._arrivals.places)
        self._mirror = MirrorStore(pool)
        self._reordering = Reordering(pool, self._lanes)
        self._sessions = SessionStore(pool, self._announcer)
        self._housekeeping = Housekeeping(
            pool, self._counts, self._arrivals, self._staging, self._sessions, self._mirror
        )
        self._progress = ProgressStore(pool)
        self._inbox = CancelInboxStore(pool)
        self._checkpoints = CheckpointStore(pool, self._lanes)
        self._logs = LogStore(pool, self._lanes)
        self._steer(pool, self._lanes, sleep, self._ready)
        self._spawning = Spawning(pool, self._lanes, self._submission)

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        pool_size: int = 8,
        limits: Limits = DEFAULT_LIMITS,
        cancel_timeout_s: float = CANCEL_TIMEOUT_S,
        connect_timeout_s: float = 5.0,
        statement_timeout_s: float = 4.0,
        pooler: bool = False,
        listen_dsn: str | None = None,
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        entropy: Entropy = SYSTEM,
    ) -> Self:
        """Connects and checks the schema. `sleep` paces what goes on while somebody listens.

        `pooler` says that `dsn` leads to a pooler in transaction mode; notifications are then
        heard only with a `listen_dsn`, which leads to the server itself.

        Raises Unavailable when the server cannot be reached, AccessRefused when it turns this user
        away or has no such database, SchemaMismatch when the schema is not up to date.
        """
        cls._check(limits, cancel_timeout_s)
        check_limit("pool_size", pool_size)
        check_ttl("connect_timeout_s", connect_timeout_s)
        check_ttl("statement_timeout_s", statement_timeout_s)
        check_flag("pooler", pooler)
        if listen_dsn is not None:
            checked("listen_dsn", listen_dsn)
        pool = await open_pool(
            dsn,
            size=pool_size,
            connect_timeout_s=connect_timeout_s,
            statement_timeout_s=statement_timeout_s,
            pooler=pooler,
        )
        try:
            async with borrowed(pool) as connection:
                await check_schema(connection)
            await RollUps(pool).adopt()
            await Counts(pool).adopt()
            await arrivals.adopt(pool)
        except BaseException:
            await pool.close()
            raise
        heard = listen_dsn or (None if pooler else dsn)
        return cls(
            heard,
            pool,
            limits=limits,
            cancel_timeout_s=cancel_timeout_s,
            rng=rng,
            sleep=sleep,
            entropy=entropy,
        )

    @property
    def figures(self) -> FigureStore:
        """What the metrics tell of the jobs."""
        return self._figures

    # Submission

    async def _submit_one(self, job: Job) -> Submitted:
        answer = await self._submission.store_one(job)
        self._submitted([job])
        return answer

    async def _submit(self, jobs: Sequence[Job], *, atomic: bool) -> list[Submitted]:
        answers = await self._submission.store(jobs, atomic=atomic)
        self._submitted([job for job, one in zip(jobs, answers, strict=True) if not one.error])
        return answers

    async def _submit_each(self, jobs: Sequence[Job]) -> list[Submitted]:
        answers = await self._submission.store_each(jobs)
        self._submitted([job for job, one in zip(jobs, answers, strict=True) if not one.error])
        return answers

    async def take_in(self, jobs: Sequence[Job]) -> TakenIn:
        check_batch(jobs, self._limits)
        if not jobs:
            return TakenIn()
        taken = await self._mirror.take_in(jobs, self._submission)
        self._submitted([job for job in jobs if job.id in taken.new])
        self._announcer.announce(Topic.MIRROR)
        return taken

    def _submitted(self, jobs: Sequence[Job]) -> None:
        """Those that wait for others are told of too: the others may have ended before. Whether
        a point in time is over only the server's clock can tell.
        """
        self._arrivals.hint()
        later = [job.delay_s for job in jobs if job.delay_s]
        now = [job for job in jobs if not job.delay_s] if later else jobs
        kinds = about((job.namespace, job.type, job.tags) for job in now)
        self._announcer.announce_ready(kinds)
        if later or any(job.scheduled_at for job in jobs):
            self._pulse.expect(min(later, default=0.0))

    def _ready(self, lanes: Collection[int], soonest_s: float | None) -> None:
        self._arrivals.hint()
        self._announcer.announce_ready(self._lanes.kinds(lanes))
        if soonest_s is not None:
            self._pulse.expect(soonest_s)

    # Assignment

    async def _dequeue(self, demand: Demand, lease_ttl_s: float | None) -> list[Job]:
        claimed = await self._claims.claim([demand], lease_ttl_s, {}, thorough=True)
        try:
            # Who calls this may not listen, and then nobody else makes delayed jobs due.
            if len(claimed) < demand.limit and await self._staging.stage_for_claim():
                rest = replace(demand, limit=demand.limit - len(claimed))
                claimed += await self._claims.claim([rest], lease_ttl_s, {}, thorough=True)
            jobs = await self._get(demand.namespace, [a.job_id for a in claimed])
        except BaseException:
            self._returns.owe(claimed)
            raise
        self._announcer.announce(Topic.MIRROR)
        return [replace(jobs[a.job_id], token=a.token) for a in claimed if a.job_id in jobs]

    async def _claim(
        self,
        demands: Sequence[Demand],
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults],
    ) -> list[Assignment]:
        claimed = await self._claims.claim(demands, lease_ttl_s, defaults)
        # Nobody else makes delayed jobs due where nobody listens.
        if not claimed and not self._pulse.beats and await self._staging.stage_for_claim():
            claimed = await self._claims.claim(demands, lease_ttl_s, defaults, thorough=True)
        if claimed:
            self._announcer.announce(Topic.MIRROR)
        return claimed

    async def _eligible_for(self, demands: Sequence[Demand]) -> list[bool]:
        return await self._claims.eligible_for(demands)

    # Outcomes

    async def _owners_of(self, named: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        return await owners_of(self._pool, named)

    async def _settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        settled = await self._settling.settle(outcomes)
        self._announcer.announce(Topic.MIRROR)
        return settled

    async def _update_status(
        self,
        namespace: str,
        job_id: str,
        token: str | None,
        status: JobState,
        result: bytes | None,
        error_msg: str,
    ) -> Freed:
        settled = await self._settling.update_status(
            namespace, job_id, token, status, result, error_msg
        )
        stopping = status is JobState.CANCELLING
        self._announcer.announce(Topic.MIRROR, *([Topic.CANCEL] if stopping else []))
        return {settled.freed_assignee_id: 1} if settled.freed_assignee_id else {}

    # Cancellation

    async def _cancel(
        self, namespace: str, tags: frozenset[str], job_ids: list[str], force: bool, reason: str
    ) -> Cancelled:
        cancelled = await self._selection.cancel(namespace, tags, job_ids, force, reason)
        self._announcer.announce(Topic.CANCEL, Topic.MIRROR)
        return cancelled

    async def _pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled:
        return await self._inbox.pending_cancels(assignee_ids)

    async def _confirm_cancels(self, received: Sequence[Held]) -> None:
        parameters = {
            "namespaces": await self._lanes.namespace_ids([held.namespace for held in received]),
            "ids": [held.job_id for held in received],
            "tokens": [storable_token(held.token) for held in received],
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(_CONFIRM, parameters)

    # Workers and leases

    async def _lose(self, *, assignee_id: str | None, namespace: str | None) -> Freed:
        freed = await self._leases.lose(assignee_id=assignee_id, namespace=namespace)
        self._announcer.announce(Topic.MIRROR)
        return freed

    async def _leased(self, assignee_ids: Collection[str]) -> list[Leased]:
        return await leased(self._pool, assignee_ids)

    async def _extend(self, held: Sequence[Held], lease_ttl_s: float) -> list[LeaseAnswer]:
        return await self._leases.extend(held, lease_ttl_s)

    async def _expire(self, lease_ttl_s: float, limit: int) -> list[Lost]:
        lost = await self._leases.expire(lease_ttl_s, limit)
        if lost:
            self._announcer.announce(Topic.MIRROR)
        if not self._pulse.beats:
            await by_itself("delayed jobs are made due", self._make_due)
        await self._housekeeping.keep()
        return lost

    async def _make_due(self) -> None:
        """For a program that claims and sweeps and does not listen; what is more than a step waits
        for the next call.
        """
        if lanes := await self._staging.stage():
            self._ready(lanes, None)

    # Queries

    async def _get(self, namespace: str, job_ids: Sequence[str]) -> dict[str, Job]:
        namespace_id = await self._lanes.namespace_id(namespace)
        if namespace_id is None or not job_ids:
            return {}
        return await self._reader.by_id(namespace_id, job_ids)

    async def _look_up(self, namespace: str, job_ids: Sequence[str]) -> dict[str, Job]:
        namespace_id = await self._lanes.namespace_id(namespace)
        if namespace_id is None or not job_ids:
            return {}
        return await self._reader.by_id(namespace_id, job_ids, whole=False)

    async def _named_jobs(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        return await self._reader.by_name(names)

    async def _stats(self, namespace: str, tags: frozenset[str]) -> JobStats:
        return await self._depths.stats(tags, namespace=namespace)

    async def queue_depth(self) -> QueueDepth:
        return await self._depths.queue_depth()

    async def _window(self, window: StatsWindow) -> WindowStats:
        return await self._windows.window(window)

    async def _roll_up(self, limit: int) -> int:
        return await self._roll_ups.roll_up(limit)

    async def _usage_of(self, namespaces: Collection[str]) -> dict[str, Usage]:
        return await self._usages.usage_of(namespaces)

    async def _take_tokens(
        self, bucket: str, amount: float, rate_per_s: float, burst: float
    ) -> float:
        return await self._usages.take(bucket, amount, rate_per_s, burst)

    async def _taken_keys(self, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        return await self._usages.taken_keys(keys)

    async def _search(self, search: JobSearch) -> JobPage:
        return await self._finder.search(search)

    async def _search_failures(self, search: FailureSearch) -> FailurePage:
        return await self._finder.search_failures(search)

    async def _history(self, namespace: str, job_id: str) -> JobHistory | None:
        return await self._records.history(namespace, job_id)

    async def _read_events(self, after: int, limit: int) -> list[EventBatch]:
        return await self._records.events(after, limit)

    # Maintenance

    async def prune_events(self, older_than_s: float) -> int:
        """Deletes the oldest rows of the event log, as far as they are older than `older_than_s`
        and every lake of the pipeline has them; gives how many. Rolls up first what is not yet.

        Not all at once: a call that is cancelled or fails has deleted some, and can be repeated.
        Raises InvalidArgument for an age of 0 or less.
        """
        check_ttl("older_than_s", older_than_s)
        while await self._roll_ups.roll_up(_ROLL_UP_ROWS) >= _ROLL_UP_ROWS:
            pass
        return await self._pruning.prune_events(older_than_s)

    async def _cleanup(self, ttl_s: float, namespace: str | None) -> int:
        return await self._selection.cleanup(ttl_s, namespace)

    async def _delete(self, namespace: str, tags: frozenset[str], job_ids: list[str]) -> int:
        return await self._selection.delete(namespace, tags, job_ids)

    # Resources

    async def detach(self, uids: Collection[str]) -> None:
        check_texts("uids", uids, self._limits.id_characters)
        await self._selection.detach(uids)
        # What waited for them may have a resource.
        self._announcer.announce(Topic.CANCEL, Topic.MIRROR)

    async def queue_uid(self) -> str:
        return await self._mirror.queue_uid()

    async def shown_jobs(
        self, names: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], ShownJob]:
        check_texts("names", {part for name in names for part in name}, self._limits.id_characters)
        return await self._mirror.shown_jobs(names)

    async def set_priorities(
        self, wanted: Mapping[tuple[str, str], Priority]
    ) -> set[tuple[str, str]]:
        check_texts(
            "wanted", {part for name in wanted for part in name}, self._limits.id_characters
        )
        running, lanes = await self._reordering.set_priorities(wanted)
        if lanes:
            self._ready(lanes, None)
        return running

    async def taken_in(self, uids: Collection[str]) -> set[str]:
        check_texts("uids", uids, self._limits.id_characters)
        return await self._mirror.taken_in(uids)

    async def attached(self, cluster_uid: str) -> list[tuple[str, str]]:
        check_text("cluster_uid", cluster_uid, self._limits.id_characters)
        return await self._mirror.attached(cluster_uid)

    async def pending_mirrors(self, limit: int = 500) -> list[MirrorEntry]:
        check_limit("limit", limit)
        return await self._mirror.pending_mirrors(limit)

    async def acknowledge_mirrors(self, sequences: Collection[int]) -> None:
        check_numbers("sequences", sequences)
        await self._mirror.acknowledge_mirrors(sequences)

    # Sessions, progress, signals

    async def _open_session(self, session: WorkerSession) -> SessionNews:
        return await self._sessions.open_session(session)

    async def _session_news(self, sessions: Sequence[WorkerSession]) -> list[SessionNews]:
        return await self._sessions.session_news(sessions)

    async def _order_session(self, session_id: str, order: SessionOrder) -> None:
        await self._sessions.order_session(session_id, order)

    async def _touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        await self._sessions.touch_sessions(sessions)

    async def _keep_sessions(self, roll: SessionRoll) -> bool:
        return await self._sessions.keep_sessions(roll)

    async def _close_sessions(self, session_ids: Collection[str], replica: str | None) -> None:
        await self._sessions.close_sessions(session_ids, replica=replica)

    async def _lose_sessions(self, losses: Sequence[Loss], replica: str | None) -> None:
        await self._sessions.lose_sessions(losses, replica=replica)

    async def _lost_workers(self, namespace: str) -> list[LostWorker]:
        return await self._sessions.lost_workers(namespace)

    async def _list_sessions(self, max_age_s: float | None) -> list[WorkerSession]:
        return await self._sessions.list_sessions(max_age_s=max_age_s)

    async def _record_progress(self, reports: Sequence[ProgressReport]) -> None:
        await self._progress.record_progress(reports)

    async def _store_checkpoints(
        self, reports: Sequence[CheckpointReport]
    ) -> list[CheckpointAnswer]:
        return await self._checkpoints.store(reports)

    async def _spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        answers = await self._spawning.spawn(requests)
        self._submitted([replace(one.job, namespace=one.namespace) for one in requests])
        return answers

    async def _append_logs(self, reports: Sequence[LogReport]) -> None:
        await self._logs.append(reports)

    async def _job_log(self, namespace: str, job_id: str, after: LogCursor) -> FoundLog:
        return await self._logs.read(namespace, job_id, after)

    hears_itself: Final = True

    def listen(self) -> AsyncIterator[News]:
        """Also starts to make delayed jobs due: who listens for READY wants them in time."""
        return self._pulse.listen()

    # Lifecycle

    async def ping(self) -> None:
        async with borrowed(self._pool) as connection:
            await check_writable(connection)

    async def close(self) -> None:
        await self._returns.aclose()
        await self._housekeeping.aclose()
        await self._pulse.aclose()
        await self._submission.aclose()
        await self._announcer.aclose()
        await self._explorer.revisiting.aclose()
        await self._pool.close()
