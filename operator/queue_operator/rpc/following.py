"""WatchJobs: jobs as they change, over gRPC."""

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from queue_operator.auth.protocol import QUEUE_JOBS
from queue_operator.domain.errors import InvalidArgument, Unavailable
from queue_operator.domain.validation import check_tags, check_texts
from queue_operator.domain.views import Phase
from queue_operator.queue.bulk import MOST_JOBS
from queue_operator.queue.followers import Ending, Follower, News, Wish
from queue_operator.queue.hub import EventHub
from queue_operator.rpc.door import Context, Door
from queue_operator.rpc.queue_calls import check_entries
from queue_operator.settings import LimitSettings
from queue_operator.wire.queue_convert import time_to_wire
from queue_operator.wire.v1 import queue_pb2 as pb

HEARTBEAT_S: Final = 15.0
REVIEW_S: Final = 30.0
"""How often it is asked whether a caller may still read what is told."""
_NO_HUB: Final = "the store of this server cannot be followed: ask now and then"


class Following:
    """The streams of events of the gRPC door; without a hub there are none."""

    def __init__(self, door: Door, hub: EventHub | None, limits: LimitSettings) -> None:
        self._door = door
        self._hub = hub
        self._limits = limits

    async def watch_jobs(self, request: pb.WatchJobsRequest, context: Context) -> None:
        identity = await self._door.identify(context)
        namespace = self._door.namespace(context, identity)
        verb = "get" if request.job_ids else "list"
        await self._door.admit(identity, verb, QUEUE_JOBS, (namespace,))
        wish = self._wish(request, namespace)
        hub = self._hub
        if hub is None:
            # As of a server that is older: to ask again is no use.
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, _NO_HUB)

        async def review() -> None:
            again = await self._door.identify(context)
            await self._door.admit(again, verb, QUEUE_JOBS, (namespace,))

        following = hub.follow(wish, caller=identity.name, after=request.after, field="after")
        async with following as follower:
            await _tell(hub, follower, context, review)

    def _wish(self, request: pb.WatchJobsRequest, namespace: str) -> Wish:
        """Raises InvalidArgument, naming the field."""
        most = {"job_ids": MOST_JOBS, "types": MOST_JOBS, "tags": self._limits.tags}
        for field, limit in most.items():
            check_entries(field, len(getattr(request, field)), limit)
        check_entries("statuses", len(request.statuses), len(Phase))
        check_texts("job_ids", request.job_ids, self._limits.id_characters)
        check_texts("types", request.types, self._limits.id_characters)
        check_tags("tags", request.tags, self._limits.to_limits())
        unknown = [one for one in request.statuses if one not in Phase.__members__]
        if unknown:
            raise InvalidArgument("statuses", f"there is none called {unknown[0]!r:.50}")
        if request.job_ids and (request.types or request.tags or request.statuses):
            raise InvalidArgument("job_ids", "cannot be combined with other filters")
        return Wish(
            namespace=namespace,
            job_ids=frozenset(request.job_ids),
            goes_on=request.goes_on,
            types=frozenset(request.types),
            tags=frozenset(request.tags),
            statuses=frozenset(map(Phase, request.statuses)),
        )


async def _tell(
    hub: EventHub, follower: Follower, context: Context, review: Callable[[], Awaitable[None]]
) -> None:
    due_s = time.monotonic() + REVIEW_S
    if not follower.buffer:
        await context.write(pb.JobEventMessage(position=hub.position_of(follower)))
    while True:
        batch = await follower.next(HEARTBEAT_S)
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + REVIEW_S
            # While who decides is away, what was decided holds, as it does at the REST door.
            with contextlib.suppress(Unavailable):
                await review()
        for news in batch.news:
            await context.write(_message(news))
        if batch.ending is Ending.AWAY:
            raise Unavailable("the server is shutting down")
        if batch.ending is not None:
            await context.write(pb.JobEventMessage(ending=batch.ending.value))
            return
        if not batch.news and not follower.buffer:
            await context.write(pb.JobEventMessage(position=hub.position_of(follower)))


def _message(news: News) -> pb.JobEventMessage:
    told: dict[str, Any] = {"position": news.id, "job_id": news.job_id, "event": news.event}
    return pb.JobEventMessage(
        **told,
        namespace=news.kind.namespace,
        type=news.kind.type,
        status=news.status,
        state=news.state,
        attempt=news.attempt,
        at=time_to_wire(news.at),
    )
