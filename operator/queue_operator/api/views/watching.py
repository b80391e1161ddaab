"""How the queue does, for whoever watches it."""

from datetime import datetime, timedelta

from queue_operator.api import schemas
from queue_operator.api.views import jobs, steering
from queue_operator.api.views.statistics import latency
from queue_operator.backends.lost_workers import LostWorker
from queue_operator.backends.protocol import WorkerSession
from queue_operator.backends.watching import SeriesPoint, StatsSeries
from queue_operator.domain.situation import Cause, Situation, Verdict
from queue_operator.queue.clustering import Cluster, Clustered, FailingType
from queue_operator.queue.explaining import Explanation


def verdict(
    found: Verdict, situation: Situation, kind: str | None, now: datetime, runbook_url: str
) -> schemas.Verdict:
    return schemas.Verdict(
        namespace=situation.namespace,
        type=kind,
        at=now,
        level=found.level,
        sentence=found.sentence,
        causes=[_cause(one, runbook_url) for one in found.causes],
        due=situation.due,
        running=situation.running,
        later=situation.later,
        workers=sum(one.is_there for one in situation.workers),
        slots=situation.slots,
        busy=situation.busy,
    )


def _cause(one: Cause, runbook_url: str) -> schemas.Cause:
    return schemas.Cause(
        code=one.code,
        level=one.level,
        message=one.message,
        types=list(one.types),
        evidence=dict(one.evidence),
        next_step=one.next_step,
        command=one.command,
        runbook=f"{runbook_url}#{one.runbook.lower()}",
    )


def worker(one: WorkerSession) -> schemas.Worker:
    return schemas.Worker(
        name=one.worker_name,
        session_id=one.session_id,
        host=one.host,
        version=one.version,
        replica=one.replica,
        types=sorted(one.types),
        tags=sorted(one.tags),
        capacity=one.capacity,
        busy=one.busy,
        draining=one.draining,
        connected_at=one.connected_at,
        heartbeat_at=one.heartbeat_at,
    )


def lost_worker(one: LostWorker) -> schemas.LostWorker:
    return schemas.LostWorker(
        state="LOST",
        name=one.worker_name or one.session_id,
        session_id=one.session_id,
        host=one.host,
        version=one.version,
        types=sorted(one.types),
        capacity=one.capacity,
        jobs=one.jobs,
        lost_at=one.lost_at,
    )


def waiting(found: list[Explanation], now: datetime) -> schemas.WaitingList:
    return schemas.WaitingList(
        waiting=[
            schemas.WaitingJob(
                job=jobs.job_status(one.job, now), why=steering.explanation(one, now)
            )
            for one in found
        ]
    )


def failing(found: Clustered) -> schemas.FailingTypes:
    return schemas.FailingTypes(
        since=found.since,
        read=found.read,
        is_complete=found.is_complete,
        types=[_failing_type(one) for one in found.types],
    )


def _failing_type(one: FailingType) -> schemas.FailingType:
    return schemas.FailingType(
        type=one.type,
        attempts_failed=one.attempts_failed,
        completed=one.completed,
        clusters=[_cluster(cluster) for cluster in one.clusters],
    )


def _cluster(one: Cluster) -> schemas.FailureCluster:
    return schemas.FailureCluster(
        code=one.code,
        category=one.category,
        shape=one.shape,
        count=one.count,
        newest_at=one.newest_at,
        job_id=one.job_id,
        message=one.message,
    )


def series(found: StatsSeries) -> schemas.StatsSeries:
    return schemas.StatsSeries(
        until=found.until,
        step=timedelta(seconds=found.step_s),
        points=[_point(one) for one in found.points],
    )


def _point(one: SeriesPoint) -> schemas.SeriesPoint:
    return schemas.SeriesPoint(
        begins_at=one.begins_at,
        submitted=one.submitted,
        completed=one.completed,
        failed=one.failed,
        dead_letter=one.dead_letter,
        cancelled=one.cancelled,
        attempts_failed=one.attempts_failed,
        queue_latency=latency(one.queue_latency),
        execution_time=latency(one.execution_time),
    )
