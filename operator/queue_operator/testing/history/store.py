"""Reads what a store says of every job of a namespace."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from queue_operator.backends.protocol import (
    AttemptLog,
    EventBatch,
    EventLog,
    History,
    JobLogs,
    JobSearch,
    Search,
)
from queue_operator.backends.webhooks import Message, MessageSearch, Webhooks
from queue_operator.domain.job import DEFAULT_NAMESPACE, Job
from queue_operator.testing.history.history import LoggedEvent, StoredJob

_PAGE = 1000
_AT_ONCE = 8


class ReadableStore(Search, History, Protocol):
    """What a store needs so that its history can be checked."""

    async def get_job(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Job: ...


async def read_store(
    store: ReadableStore,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    logged: Collection[str] | None = None,
) -> dict[str, StoredJob]:
    """Jobs by id. Nobody may change them meanwhile. Where it is known which jobs `logged`
    something, the logs of the others are not read.
    """

    async def read(job_id: str) -> StoredJob:
        told = await store.get_history(job_id, namespace=namespace)
        # A page of a search leaves results out.
        job = await store.get_job(job_id, namespace=namespace)
        return StoredJob(
            job=job,
            attempts=told.attempts,
            transitions=told.transitions,
            events=None if events is None else tuple(events.get(job_id, ())),
            logs=await _logs(store, job_id, namespace)
            if logged is None or job_id in logged
            else (),
            messages=await _messages(store, job),
        )

    events = await _events(store, namespace) if isinstance(store, EventLog) else None
    ids = [job_id async for job_id in _ids(store, namespace)]
    found: dict[str, StoredJob] = {}
    for some in (ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)):
        found |= zip(some, await asyncio.gather(*(read(job_id) for job_id in some)), strict=True)
    return found


async def _logs(store: ReadableStore, job_id: str, namespace: str) -> tuple[AttemptLog, ...]:
    if not isinstance(store, JobLogs):
        return ()
    return tuple(await store.job_log(job_id, namespace=namespace))


async def _messages(store: ReadableStore, job: Job) -> tuple[Message, ...] | None:
    box = getattr(store, "webhooks", None)
    if not isinstance(box, Webhooks) or not job.callback_url:
        return None
    found: list[Message] = []
    search = MessageSearch(namespace=job.namespace, job_id=job.id, limit=_PAGE)
    while True:
        page = await box.search(search)
        found += page.messages
        if not page.next_cursor:
            return tuple(found)
        search = replace(search, after=page.next_cursor)


async def _ids(store: ReadableStore, namespace: str) -> AsyncIterator[str]:
    cursor = ""
    while True:
        search = JobSearch(namespace=namespace, limit=_PAGE, cursor=cursor)
        page = await store.search_jobs(search)
        for job in page.jobs:
            yield job.id
        cursor = page.next_cursor
        if not cursor:
            return


async def _events(log: EventLog, namespace: str) -> Mapping[str, list[LoggedEvent]]:
    names: dict[int, str] = {}
    found: defaultdict[str, list[LoggedEvent]] = defaultdict(list)
    after = 0
    while page := await log.read_events(after=after, limit=_PAGE):
        for batch in page:
            names |= _named(batch, namespace)
            told = LoggedEvent(batch.event, batch.before, batch.after, batch.at)
            for number in batch.job_nos:
                if number in names:
                    found[names[number]].append(told)
        after = page[-1].seq
    return found


def _named(batch: EventBatch, namespace: str) -> dict[int, str]:
    """Of a submission, the numbers and ids of those in the namespace."""
    lanes = [batch.lanes[place] for place in batch.lane_of]
    return {
        number: job_id
        for number, job_id, lane in zip(batch.job_nos, batch.ids, lanes, strict=False)
        if lane["namespace"] == namespace
    }
