"""How the queue does, for whoever watches it."""

import asyncio
from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.operation import ANYBODY, Call, Operation, render
from queue_operator.api.views import watching as views
from queue_operator.auth.protocol import QUEUE_JOBS, QUEUE_WORKERS
from queue_operator.auth.scopes import EVERY_NAMESPACE
from queue_operator.domain.errors import Forbidden
from queue_operator.domain.validation import check_text


async def get_verdict(call: Call[schemas.VerdictQuery]) -> Response:
    """How a namespace does, or one type in it, in one sentence; what causes it, with what was
    counted; and what to do next.
    """
    kind = _type(call, call.query.type)
    found, situation = await call.services.watch.verdict(call.namespace, kind)
    services = call.services
    runbook_url = services.settings.rest.runbook_url
    return render(views.verdict(found, situation, call.query.type, services.now(), runbook_url))


async def list_workers(call: Call[schemas.NamespaceQuery]) -> Response:
    """The workers that are connected, on whichever replica. And those that were lost: that went
    without a goodbye, or have been silent for a minute.
    """
    watch = call.services.watch
    found, lost = await asyncio.gather(watch.workers(call.namespace), watch.lost(call.namespace))
    return render(
        schemas.WorkerList(
            workers=[views.worker(one) for one in found],
            lost=[views.lost_worker(one) for one in lost],
        )
    )


async def list_waiting(call: Call[schemas.OldestQuery]) -> Response:
    """The jobs that could run and were submitted first, each with the reason why it does not."""
    found = await call.services.watch.oldest(call.namespace, call.query.limit)
    return render(views.waiting(found, call.services.now()))


async def list_failing(call: Call[schemas.FailingQuery]) -> Response:
    """The types of which attempts failed within some time. The newest 200 failures are read, and
    those of one code whose messages are alike are put together.
    """
    query = call.query
    kind = _type(call, query.type)
    range_s = query.time_range.total_seconds()
    return render(views.failing(await call.services.watch.failing(call.namespace, range_s, kind)))


async def get_series(call: Call[schemas.SeriesQuery]) -> Response:
    """What happened over time: outcomes and percentiles, in steps of equal length."""
    range_s = call.query.time_range.total_seconds()
    return render(views.series(await call.services.watch.series(call.namespace, range_s)))


async def get_access(call: Call[schemas.NamespaceQuery]) -> Response:
    """What the caller may do in a namespace, so that nothing else need be offered."""
    verbs = [*schemas.JobRights.model_fields]
    asked = [(verb, QUEUE_JOBS) for verb in verbs] + [("patch", QUEUE_WORKERS)]
    *jobs, patch = await asyncio.gather(*(_may(call, *one) for one in asked))
    return render(
        schemas.Access(
            name=call.identity.name,
            namespace=call.namespace,
            namespaces=sorted(call.identity.namespaces - {EVERY_NAMESPACE}),
            jobs=schemas.JobRights(**dict(zip(verbs, jobs, strict=True))),
            workers=schemas.WorkerRights(patch=patch),
        )
    )


async def _may(call: Call[Any], verb: str, resource: str) -> bool:
    try:
        await call.services.authorizer.authorize(call.identity, verb, resource, call.namespace)
    except Forbidden:
        return False
    return True


def _type(call: Call[Any], named: str | None) -> str:
    if named is None:
        return ""
    check_text("type", named, call.services.limits.id_characters)
    return named


_SUBJECT: Final = "Watching"

OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="getVerdict",
        method="GET",
        path="/v1/verdict",
        verb="list",
        subject=_SUBJECT,
        summary="How a namespace does, in one sentence",
        run=get_verdict,
        query=schemas.VerdictQuery,
        answers={200: schemas.Verdict},
    ),
    Operation(
        id="listWorkers",
        method="GET",
        path="/v1/workers",
        verb="list",
        subject=_SUBJECT,
        summary="The workers, connected and lost",
        run=list_workers,
        query=schemas.NamespaceQuery,
        answers={200: schemas.WorkerList},
    ),
    Operation(
        id="listWaiting",
        method="GET",
        path="/v1/waiting",
        verb="list",
        subject=_SUBJECT,
        summary="The oldest jobs that wait, and why",
        run=list_waiting,
        query=schemas.OldestQuery,
        answers={200: schemas.WaitingList},
    ),
    Operation(
        id="listFailing",
        method="GET",
        path="/v1/failures/clusters",
        verb="list",
        subject=_SUBJECT,
        summary="The types that fail, and how",
        run=list_failing,
        query=schemas.FailingQuery,
        answers={200: schemas.FailingTypes},
    ),
    Operation(
        id="getSeries",
        method="GET",
        path="/v1/stats/series",
        verb="list",
        subject=_SUBJECT,
        summary="Outcomes and latencies over time",
        run=get_series,
        query=schemas.SeriesQuery,
        answers={200: schemas.StatsSeries},
    ),
    Operation(
        id="getAccess",
        method="GET",
        path="/v1/access",
        verb=ANYBODY,
        subject=_SUBJECT,
        summary="What the caller may do",
        run=get_access,
        query=schemas.NamespaceQuery,
        answers={200: schemas.Access},
    ),
)
