"""Tells of jobs as they change, in streams of events that can be resumed."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from fastapi import HTTPException, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from queue_operator.api import schemas
from queue_operator.api.operation import Call, Operation
from queue_operator.api.sse import HEADERS, frames
from queue_operator.auth.protocol import QUEUE_JOBS
from queue_operator.backends.positions import LAST_EVENT_ID
from queue_operator.domain.validation import check_tags, check_texts
from queue_operator.queue.followers import Follower, Wish


async def follow_job(call: Call[schemas.JobEventsQuery]) -> Response:
    """First how the job is, then each change as it happens, until the job has ended; then an event
    `end`, and the answer is over. With `Last-Event-ID` it begins with what came since.
    """
    wish = Wish(
        namespace=call.namespace, job_ids=frozenset({call.job_id}), goes_on=call.query.follow
    )
    return await _followed(call, wish)


async def follow_jobs(call: Call[schemas.EventsQuery]) -> Response:
    """Each change of the jobs that meet all filters, as it happens, until the caller hangs up. An
    event `slow` tells a caller who reads too slowly, and the answer is over: the same call with
    `Last-Event-ID` goes on.
    """
    query, limits = call.query, call.services.limits
    check_texts("type", query.type, limits.id_characters)
    check_tags("tag", query.tag, limits)
    wish = Wish(
        namespace=call.namespace,
        types=frozenset(query.type),
        tags=frozenset(query.tag),
        statuses=frozenset(query.status),
    )
    return await _followed(call, wish)


async def _followed(call: Call[Any], wish: Wish) -> Response:
    hub = call.services.events
    if hub is None:
        # None of our stores: not in the document.
        raise HTTPException(501, "the store of this server cannot be followed: ask now and then")
    services, verb = call.services, call.operation.verb
    token = call.token

    async def review() -> None:
        identity = await services.authenticator.authenticate(token)
        await services.authorizer.authorize(identity, verb, QUEUE_JOBS, call.namespace)

    after = call.request.headers.get(LAST_EVENT_ID) or None
    following = hub.follow(wish, caller=call.identity.name, after=after)
    # What is wrong is told before the answer begins.
    follower = await following.__aenter__()
    return _EventStream(following, frames(hub, follower, review))


class _EventStream(StreamingResponse):
    """Ends with its caller: one that is gone before the first event is told of none."""

    def __init__(
        self, following: AbstractAsyncContextManager[Follower], content: AsyncIterator[bytes]
    ) -> None:
        super().__init__(content, headers=HEADERS, media_type="text/event-stream")
        self._following = following

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._following.__aexit__(None, None, None)


_SUBJECT: Final = "Events"
_ERRORS: Final = frozenset({410, 429})

OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="followJob",
        method="GET",
        path="/v1/jobs/{job_id}/events",
        verb="get",
        subject=_SUBJECT,
        summary="Follow a job",
        run=follow_job,
        query=schemas.JobEventsQuery,
        answers={200: schemas.JobEvent},
        errors=_ERRORS | {404},
        streams=True,
    ),
    Operation(
        id="followJobs",
        method="GET",
        path="/v1/events",
        verb="list",
        subject=_SUBJECT,
        summary="Follow jobs",
        run=follow_jobs,
        query=schemas.EventsQuery,
        answers={200: schemas.JobEvent},
        errors=_ERRORS,
        streams=True,
    ),
)
