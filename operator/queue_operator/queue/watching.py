"""What whoever watches a queue asks: the verdict, the oldest that wait, what fails, who works."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol, cast

from queue_operator.backends.lost_workers import LOST_FOR, LostWorker, newest_first
from queue_operator.backends.protocol import (
    Failures,
    FailureSearch,
    JobSearch,
    Pause,
    Pauses,
    Search,
    SearchOrder,
    Sessions,
    Statistics,
    WorkerSession,
)
from queue_operator.backends.statistics import Breakdown, StatsWindow, WindowStats
from queue_operator.backends.watching import SeriesWindow, StatsSeries, Watching
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.situation import (
    FEW_FAILURES,
    LATE_S,
    Hold,
    LostNow,
    MessagesNow,
    Situation,
    TypeNow,
    Verdict,
    WorkerNow,
)
from queue_operator.domain.verdict import judge
from queue_operator.domain.views import Phase
from queue_operator.queue.clustering import Clustered, Clusters
from queue_operator.queue.explaining import Explainer, Explanation, WaitReason, connected, utc_now
from queue_operator.queue.protocol import HostedQueue
from queue_operator.queue.silence import silenced

MOST_READ: Final = 200
"""So many of the newest failures are read to put them into clusters."""
MOST_OLDEST: Final = 20
MOST_RETRYING: Final = 1000
"""So many that are tried again are looked at, to find those whose time has come."""
_A_PAGE: Final = 200
MOST_TYPES: Final = 50
"""So many failing types are told of."""
SILENT_S: Final = 60.0
"""Of whom nothing was heard for longer is lost: leases are over by then, and whoever lives has come
back to a replica.
"""


class Store(Search, Failures, Statistics, Watching, Pauses, Protocol):
    """What a store must be able to."""


class Watch:
    """Looks at the store and at the connected workers. What it asks costs the same, however many
    jobs there are.
    """

    def __init__(self, queue: HostedQueue, now: Callable[[], datetime] = utc_now) -> None:
        self._queue = queue
        self._now = now
        self._explainer = Explainer(queue, now)
        # Asked once: to compare a store with a protocol takes longer than many of the calls.
        capabilities = (Search, Failures, Statistics, Watching, Pauses)
        self._able = all(isinstance(queue.backend, one) for one in capabilities)

    async def verdict(self, namespace: str, kind: str = "") -> tuple[Verdict, Situation]:
        """On the namespace, or on one type in it."""
        store = self._store()
        window = StatsWindow(
            namespace=namespace, time_range_s=LATE_S, breakdown_by=frozenset({Breakdown.TYPE})
        )
        stats, ages, pauses, workers, lost, (may_run, messages) = await asyncio.gather(
            store.window_stats(window),
            store.oldest_due(namespace=namespace),
            store.pauses(namespace),
            self.workers(namespace),
            self.lost(namespace),
            asyncio.gather(self._queue.may_run(namespace), self.messages(namespace, kind)),
        )
        failing = [name for name, n in stats.failed_by_type.items() if n >= FEW_FAILURES]
        clusters = Clusters()
        if failing and kind in ("", *failing):
            clusters, _, _ = await self._clusters(namespace, stats.since, kind)
        names = {kind} if kind else stats.by_type.keys() | stats.failed_by_type.keys()
        situation = Situation(
            namespace=namespace,
            window_s=LATE_S,
            types=tuple(
                _type(name, stats, ages.get(name, 0.0), clusters) for name in sorted(names)
            ),
            # The store wrote when it heard of them: by its clock, not by that of this machine.
            workers=tuple(_worker(one, stats.until) for one in workers),
            lost=tuple(_lost(one, stats.until) for one in lost if _handled(one, kind)),
            holds=tuple(_hold(one) for one in pauses if not kind or one.type in ("", kind)),
            later=_later(stats, kind),
            may_run=may_run,
            messages=messages,
        )
        return judge(situation), situation

    async def workers(self, namespace: str) -> list[WorkerSession]:
        """The connected workers of a namespace, by name."""
        found = await connected(self._queue, max_age_s=SILENT_S)
        mine = [one for one in found if one.namespace == namespace]
        return sorted(mine, key=lambda one: (one.worker_name, one.session_id))

    async def lost(self, namespace: str) -> list[LostWorker]:
        """The workers that died within ten minutes, and of whose name none has come since: their
        replica told so, or it died with them.
        """
        store = self._queue.backend
        if not isinstance(store, Sessions):
            return []
        told, heard, every = await asyncio.gather(
            store.lost_workers(namespace),
            connected(self._queue, max_age_s=SILENT_S),
            store.list_sessions(max_age_s=LOST_FOR.total_seconds()),
        )
        known = {one.session_id for one in heard} | {one.session_id for one in told}
        return newest_first([*told, *silenced(namespace, every, known)])

    async def messages(self, namespace: str, kind: str = "") -> MessagesNow:
        """How it goes with those to callback URLs; of a type alone, where one is named."""
        store = getattr(self._queue.backend, "webhooks", None)
        # To ask whether it has the whole protocol takes longer than the look.
        return MessagesNow() if store is None else await store.standing(namespace, type=kind)

    async def oldest(self, namespace: str, limit: int) -> list[Explanation]:
        """The jobs that could run and were submitted first, and why they do not."""
        now = self._now()
        due = await self._due(namespace, Phase.SCHEDULED, MOST_OLDEST, now)
        # Of those that are tried again many may wait for their time.
        due += await self._due(namespace, Phase.RETRYING, MOST_RETRYING, now)
        due.sort(key=lambda job: job.eligible_at or job.created_at or now)
        told = await self._explainer.explain_each(due[:limit])
        if all(one.reason is not WaitReason.DUE for one in told):
            return told
        window = StatsWindow(
            namespace=namespace, time_range_s=LATE_S, breakdown_by=frozenset({Breakdown.TYPE})
        )
        stats, workers = await asyncio.gather(
            self._store().window_stats(window), self.workers(namespace)
        )
        return [_in_company(one, stats.due_by_type, workers) for one in told]

    async def _due(self, namespace: str, phase: Phase, most_read: int, now: datetime) -> list[Job]:
        """Of the jobs in that phase that were submitted first."""
        found: list[Job] = []
        read, cursor = 0, ""
        while True:
            search = JobSearch(
                namespace=namespace,
                phases=frozenset({phase}),
                order=SearchOrder.CREATED_ASC,
                limit=min(most_read - read, _A_PAGE),
                cursor=cursor,
                count=False,
            )
            page = await self._store().search_jobs(search)
            found += [job for job in page.jobs if job.eligible_at is None or job.eligible_at <= now]
            read, cursor = read + len(page.jobs), page.next_cursor
            if not cursor or len(found) >= MOST_OLDEST or read >= most_read:
                return found

    async def failing(self, namespace: str, time_range_s: float, kind: str = "") -> Clustered:
        """The types that failed within that time, and how."""
        window = StatsWindow(
            namespace=namespace,
            time_range_s=time_range_s,
            breakdown_by=frozenset({Breakdown.TYPE}),
        )
        stats = await self._store().window_stats(window)
        clusters, read, is_complete = await self._clusters(namespace, stats.since, kind)
        completed = {name: one.completed for name, one in stats.by_type.items()}
        failed = {name: n for name, n in stats.failed_by_type.items() if kind in ("", name)}
        return Clustered(
            since=stats.since,
            read=read,
            is_complete=is_complete,
            types=tuple(clusters.types(failed, completed)[:MOST_TYPES]),
        )

    async def series(self, namespace: str, time_range_s: float) -> StatsSeries:
        window = SeriesWindow(namespace=namespace, time_range_s=time_range_s)
        return await self._store().stats_series(window)

    async def _clusters(
        self, namespace: str, since: datetime, kind: str
    ) -> tuple[Clusters, int, bool]:
        """Of how many failures, and whether these are all."""
        search = FailureSearch(
            namespace=namespace,
            types=frozenset({kind} if kind else ()),
            failed_after=since - timedelta(microseconds=1),
            limit=MOST_READ,
            count=False,
        )
        try:
            jobs = (await self._store().search_failures(search)).jobs
        except InvalidArgument:
            # Refused for the time it would take; what was counted can be told without it.
            return Clusters(), 0, False
        return Clusters.of(jobs), len(jobs), len(jobs) < MOST_READ

    def _store(self) -> Store:
        if not self._able:
            raise InvalidArgument("operation", "this store has no statistics, searches or pauses")
        return cast(Store, self._queue.backend)


def _in_company(
    one: Explanation, due: Mapping[str, int], workers: Sequence[WorkerSession]
) -> Explanation:
    """Of the first of its type, that its workers have other types to run, too."""
    if one.reason is not WaitReason.DUE:
        return one
    mine = [worker.types for worker in workers if not worker.types or one.job.type in worker.types]
    kinds = set(due) if not all(mine) else set[str]().union(*mine)
    others = sum(due.get(kind, 0) for kind in kinds - {one.job.type})
    if not others:
        return one
    jobs = "1 job of another type waits" if others == 1 else f"{others:,} jobs of other types wait"
    return replace(
        one, message=f"it is the first of its type; {jobs} for the same workers, the oldest first"
    )


def _type(name: str, stats: WindowStats, age_s: float, clusters: Clusters) -> TypeNow:
    counts = stats.by_type.get(name)
    return TypeNow(
        type=name,
        due=stats.due_by_type.get(name, 0),
        running=counts.running if counts else 0,
        completed=counts.completed if counts else 0,
        attempts_failed=stats.failed_by_type.get(name, 0),
        oldest_s=age_s,
        code=clusters.code_of(name),
    )


def _later(stats: WindowStats, kind: str) -> int:
    """How many wait for a time, for other jobs, or to be resumed."""
    if not kind:
        return stats.pending + stats.delayed
    counts = stats.by_type.get(kind)
    return max(counts.pending - stats.due_by_type.get(kind, 0), 0) if counts else 0


def _worker(one: WorkerSession, now: datetime) -> WorkerNow:
    heard = one.heartbeat_at
    return WorkerNow(
        name=one.worker_name or one.session_id,
        types=one.types,
        capacity=one.capacity,
        busy=one.busy,
        draining=one.draining,
        silent_s=0.0 if heard is None else max((now - heard).total_seconds(), 0.0),
    )


def _handled(one: LostWorker, kind: str) -> bool:
    return not kind or not one.types or kind in one.types


def _lost(one: LostWorker, now: datetime) -> LostNow:
    return LostNow(
        name=one.worker_name or one.session_id,
        ago_s=max((now - one.lost_at).total_seconds(), 0.0),
        jobs=one.jobs,
    )


def _hold(one: Pause) -> Hold:
    return Hold(type=one.type, reason=one.reason, by=one.by)
