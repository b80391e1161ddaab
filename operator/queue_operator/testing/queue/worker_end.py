"""The worker's end of a stream of the worker plane, without a network between."""

import uuid
from collections.abc import Sequence
from typing import Any, cast

from queue_operator.domain.job import Assignment, CancelRequest
from queue_operator.domain.lease import Held, LeaseAnswer
from queue_operator.domain.outcome import ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import HostedQueue, Stream, StreamSpec
from queue_operator.testing.queue.desk import Desk, bounded


def held(jobs: Sequence[Assignment]) -> list[Held]:
    return [Held(job.job_id, job.token, job.namespace) for job in jobs]


def spec_of(desk: Desk, capacity: int, **fields: Any) -> StreamSpec:
    """One worker's process: whoever opens several streams by it is the same."""
    values = {"assignee_id": uuid.uuid4().hex, "worker_name": "w", "namespace": desk.namespace}
    values["process"] = uuid.uuid4().hex
    return StreamSpec(capacity=capacity, **(values | fields))


class WorkerEnd:
    """Takes jobs, says what it holds and how they end."""

    def __init__(self, stream: Stream, host: HostedQueue) -> None:
        self.stream = stream
        self._host = host

    @classmethod
    async def open(
        cls,
        desk: Desk,
        capacity: int = 1,
        *,
        spec: StreamSpec | None = None,
        brings: Sequence[Assignment] = (),
        at_calls: bool = False,
    ) -> "WorkerEnd":
        """A worker of a rig in this process, connected where streams are, or where calls are."""
        host = cast(HostedQueue, desk.pair.calls if at_calls else desk.pair.streams)
        spec = spec or spec_of(desk, capacity)
        return cls(await host.open_stream(spec, held(brings)), host)

    @property
    def busy(self) -> int:
        """Slots that are taken."""
        return next(u.busy for u in self._host.usage() if u.spec == self.stream.spec)

    async def take(self, count: int) -> list[Assignment]:
        jobs: list[Assignment] = []
        async with bounded("what the worker waits for"):
            while len(jobs) < count:
                push = await self.stream.next()
                assert push is not None, "the stream has ended"
                self.stream.delivered(push)
                jobs += push.assignments
        return jobs

    async def cancel(self) -> CancelRequest:
        """The next cancel that is pushed."""
        async with bounded("what the worker waits for"):
            while True:
                push = await self.stream.next()
                assert push is not None, "the stream has ended"
                self.stream.delivered(push)
                if push.cancels:
                    return push.cancels[0]

    async def beat(self, *jobs: Assignment) -> list[LeaseAnswer]:
        """Says that it holds just these."""
        return await self.stream.heartbeat(held(jobs))

    async def say(self, job: Assignment, *events: Event) -> list[Settled]:
        """Sends outcomes of one job in one message."""
        errors = {Event.FAIL: ErrorInfo("it broke")}
        return await self.stream.settle(
            [
                Outcome(
                    job.job_id,
                    event,
                    job.namespace,
                    job.token,
                    error=errors.get(event),
                    worker_plane=True,
                )
                for event in events
            ]
        )
