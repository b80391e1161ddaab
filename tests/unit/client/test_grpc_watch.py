"""The gRPC client watches jobs of a server that breaks in every way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from tests.waiting import DEADLINE_S

from queue_operator.client import JobEvent, Phase
from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.domain.errors import (
    Forbidden,
    InvalidArgument,
    JobNotFound,
    PositionExpired,
    QueueError,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.status import status_code, trailers
from queue_operator.wire.v1 import queue_pb2 as pb

AT = datetime(2030, 1, 1, tzinfo=UTC)
END = pb.JobEventMessage(ending="end")
SLOW = pb.JobEventMessage(ending="slow")
AWAY = Unavailable("away")
NO_STREAM = grpc.StatusCode.UNIMPLEMENTED
Said = pb.JobEventMessage | QueueError | grpc.StatusCode


def event(position: str, status: str = "RUNNING", attempt: int = 1) -> pb.JobEventMessage:
    return pb.JobEventMessage(
        position=position,
        job_id="a",
        namespace="n",
        type="t",
        status=status,
        state="RUNNING",
        event="CLAIM",
        attempt=attempt,
        at=convert.time_to_wire(AT),
    )


def beat(position: str) -> pb.JobEventMessage:
    return pb.JobEventMessage(position=position)


@dataclass
class Script:
    """What each stream says before it ends; the last one goes on. What GetJob answers."""

    streams: list[list[Said]] = field(default_factory=list)
    jobs: list[pb.GetJobResponse | QueueError] = field(default_factory=list)
    asked: list[pb.WatchJobsRequest] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    open: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)


class Server(grpc.GenericRpcHandler):
    def __init__(self, script: Script) -> None:
        self._script = script

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if details.method.endswith("/WatchJobs"):
            return grpc.unary_stream_rpc_method_handler(self._watch)
        return grpc.unary_unary_rpc_method_handler(self._get)

    async def _watch(self, request: bytes, context: Any) -> None:
        script = self._script
        script.asked.append(pb.WatchJobsRequest.FromString(request))
        script.metadata.append(dict(context.invocation_metadata()))
        said = script.streams.pop(0)
        script.open += 1
        try:
            for one in said:
                await self._say(one, context)
            if not script.streams:
                await asyncio.Event().wait()
        finally:
            script.open -= 1
            script.left.set()

    async def _say(self, one: Said, context: Any) -> None:
        if isinstance(one, QueueError):
            await context.abort(status_code(one), str(one), trailers(one))
        elif isinstance(one, grpc.StatusCode):
            await context.abort(one, "no such stream")
        else:
            await context.write(one.SerializeToString())

    async def _get(self, request: bytes, context: Any) -> bytes:
        jobs = self._script.jobs
        answer = jobs.pop(0) if len(jobs) > 1 else jobs[0]
        if isinstance(answer, QueueError):
            await context.abort(status_code(answer), str(answer), trailers(answer))
            return b""
        return answer.SerializeToString()


@dataclass
class Rig:
    script: Script
    client: GrpcQueue
    pauses: list[float]

    def says(self, *streams: list[Said]) -> None:
        self.script.streams += streams


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    script, pauses, tokens = Script(), list[float](), iter(range(1000))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Server(script),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    repeats = Repeats(attempts=1, initial_delay_s=0.1, rng=lambda: 0.5)
    token = lambda: f"token-{next(tokens)}"  # noqa: E731
    async with GrpcQueue(f"127.0.0.1:{port}", token, repeats=repeats, sleep=pause) as client:
        yield Rig(script, client, pauses)
    await server.stop(None)


async def told(events: AsyncIterator[JobEvent]) -> list[str]:
    async with asyncio.timeout(DEADLINE_S):
        return [one.position async for one in events]


async def test_an_event_is_what_it_is_over_rest(rig: Rig) -> None:
    rig.says([event("p1", "DEAD_LETTER", 2), END])
    [one] = [one async for one in rig.client.watch("a", namespace="n")]
    assert one == JobEvent(
        job_id="a",
        namespace="n",
        type="t",
        status=Phase.DEAD_LETTER,
        state="RUNNING",
        event="CLAIM",
        attempt=2,
        at=AT,
        position="p1",
    )
    assert one.is_finished
    assert rig.script.asked == [pb.WatchJobsRequest(job_ids=["a"])]
    assert rig.script.metadata[0]["namespace"] == "n"


async def test_a_stream_that_breaks_goes_on_after_what_was_told_last(rig: Rig) -> None:
    rig.says(
        [event("p1"), event("p2")],
        [AWAY],
        [AWAY],
        [beat("p3"), AWAY],
        [event("p4"), SLOW],
        [event("p5", "COMPLETED"), END],
    )
    assert await told(rig.client.watch("a", after="p0")) == ["p1", "p2", "p4", "p5"]
    assert [asked.after for asked in rig.script.asked] == ["p0", "p2", "p2", "p2", "p3", "p4"]
    # The first one is spread over a second, as many come back at once; others as for calls.
    assert rig.pauses == [0.5, 0.1, 0.2, 0.5, 0.5]


async def test_credentials_that_were_good_are_renewed(rig: Rig) -> None:
    rig.says([event("p1"), Unauthenticated("expired")], [event("p2", "COMPLETED"), END])
    assert await told(rig.client.watch("a")) == ["p1", "p2"]
    sent = [one["authorization"] for one in rig.script.metadata]
    assert sent == ["Bearer token-0", "Bearer token-1"]


async def test_a_position_that_is_too_old_is_told_and_given_up(rig: Rig) -> None:
    gaps = list[str]()
    rig.says([PositionExpired("begin anew")], [event("p9", "COMPLETED"), END])
    assert await told(rig.client.watch("a", after="p1", on_gap=gaps.append)) == ["p9"]
    assert [asked.after for asked in rig.script.asked] == ["p1", ""]
    assert gaps == ["begin anew; what comes next is told from now on"]


@pytest.mark.parametrize("error", [JobNotFound("a", "n"), Forbidden("no")])
async def test_what_the_server_refuses_is_an_error(rig: Rig, error: QueueError) -> None:
    rig.says([error])
    events = rig.client.watch("a")
    with pytest.raises(type(error)):
        await anext(events)
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    assert rig.pauses == []


@pytest.mark.parametrize("error", [AWAY, QuotaExceeded("streams", 1, 1, 3.0)])
async def test_a_server_that_stays_away_is_given_up(rig: Rig, error: QueueError) -> None:
    rig.says([error], [error])
    with pytest.raises(type(error)):
        await anext(rig.client.watch("a", outage_s=0))


async def test_where_there_is_no_room_it_waits_as_long_as_the_server_says(rig: Rig) -> None:
    rig.says([QuotaExceeded("streams", 1, 1, 3.0)], [event("p1", "COMPLETED"), END])
    assert await told(rig.client.watch("a")) == ["p1"]
    assert rig.pauses == [3.0]


async def test_a_step_that_is_cancelled_loses_nothing(rig: Rig) -> None:
    rig.says([event("p1")], [event("p2")], [])
    events = rig.client.watch(types=["t"])
    assert (await anext(events)).position == "p1"
    steps = [asyncio.ensure_future(anext(events)) for _ in range(2)]
    await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
    [done] = [one for one in steps if one.done()]
    [late] = [one for one in steps if not one.done()]
    assert done.result().position == "p2"
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    waiting = asyncio.ensure_future(anext(events))
    await events.aclose()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_an_event_that_came_while_a_step_was_cancelled_is_told_to_the_next(
    rig: Rig,
) -> None:
    rig.says([event("p1")], [event("p2", "COMPLETED"), END])
    events = rig.client.watch("a")
    step = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)  # it has begun
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    assert await told(events) == ["p1", "p2"]


CLOSED: list[Callable[[Rig, Any], Awaitable[object]]] = [
    lambda rig, events: events.aclose(),
    lambda rig, events: rig.client.close(),
    lambda rig, events: rig.client.within(1).close(),
]


@pytest.mark.parametrize("close", CLOSED)
async def test_whoever_closes_hangs_up(rig: Rig, close: Any) -> None:
    rig.says([event("p1")])
    events = rig.client.watch("a")
    assert (await anext(events)).position == "p1"
    await close(rig, events)
    async with asyncio.timeout(DEADLINE_S):
        await rig.script.left.wait()
    assert rig.script.open == 0
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_whoever_is_forgotten_hangs_up(rig: Rig) -> None:
    rig.says([event("p1")])
    assert (await anext(rig.client.watch("a"))).position == "p1"
    async with asyncio.timeout(DEADLINE_S):
        await rig.script.left.wait()


async def test_a_filter_is_sent_as_it_is_given(rig: Rig) -> None:
    rig.says([event("p1"), END])
    tags = {"k": "v", "bare": ""}
    options: dict[str, Any] = {"types": iter(["t", "u"]), "states": [Phase.FAILED], "tags": tags}
    assert await told(rig.client.watch(follow=True, **options)) == ["p1"]
    [asked] = rig.script.asked
    wanted = pb.WatchJobsRequest(types=["t", "u"], statuses=["FAILED"], tags=["bare", "k=v"])
    wanted.goes_on = True
    assert asked == wanted


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"job_id": ""}, "job_id"),
        ({"job_id": "a", "types": ["t"]}, "job_id"),
        ({"types": "t"}, "types"),
        ({"states": ["DONE"]}, "states"),
        ({"tags": {"": "v"}}, "tags"),
        ({"after": "\ud800"}, "after"),
        ({"namespace": ""}, "namespace"),
    ],
)
async def test_what_no_message_can_hold_is_not_sent(
    rig: Rig, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument, match=field):
        rig.client.watch(**given)


def look(state: JobState, attempt: int = 1) -> pb.GetJobResponse:
    job = Job(id="a", type="t", state=state, attempt=attempt, updated_at=AT)
    return pb.GetJobResponse(job=convert.job_to_wire(job))


async def test_without_streams_a_job_is_looked_at(rig: Rig) -> None:
    rig.says([NO_STREAM])
    running = look(JobState.RUNNING)
    rig.script.jobs += [running, running, AWAY, look(JobState.RUNNING, 2)]
    rig.script.jobs.append(look(JobState.COMPLETED, 2))
    seen = [one async for one in rig.client.watch("a", poll_s=3)]
    assert [(one.status, one.attempt) for one in seen] == [
        ("RUNNING", 1),
        ("RUNNING", 2),
        ("COMPLETED", 2),
    ]
    assert seen[0].at == AT
    assert rig.pauses == [3.0] * 4


async def test_without_streams_no_filter_is_followed(rig: Rig) -> None:
    rig.says([NO_STREAM])
    with pytest.raises(QueueError, match="cannot be followed"):
        await anext(rig.client.watch(types=["t"]))


async def test_a_client_that_is_closed_says_so(rig: Rig) -> None:
    await rig.client.close()
    with pytest.raises(Unavailable, match="closed"):
        await anext(rig.client.watch("a"))
    assert rig.pauses == []
