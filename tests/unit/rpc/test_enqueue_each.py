"""Submissions that share a call: what is wrong with one is nothing to the others."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from queue_operator.domain.errors import DuplicateJob, QueueError, Unavailable
from queue_operator.domain.job import Job
from queue_operator.rpc.queue_calls import METHODS
from queue_operator.wire.status import error_from_wire
from queue_operator.wire.v1 import queue_pb2 as pb


@dataclass
class Shelf:
    """As much of a queue as takes jobs."""

    errors: dict[str, Exception] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)

    async def enqueue_job(self, job: Job) -> str:
        if error := self.errors.get(job.id):
            raise error
        self.stored.append(job.id)
        return job.id


async def submit(shelf: Shelf, *names: str) -> list[pb.Enqueued]:
    queue: Any = shelf
    request = pb.EnqueueEachRequest(jobs=[pb.Job(id=name, type="t") for name in names])
    answer = await METHODS["EnqueueEach"].run(queue, request, "default")
    assert isinstance(answer, pb.EnqueueEachResponse)
    return list(answer.enqueued)


async def test_a_fault_met_by_one_is_told_to_that_one() -> None:
    shelf = Shelf({"b": ValueError("of the store"), "c": DuplicateJob(("c",))})
    answers = await submit(shelf, "a", "b", "c", "d")
    assert [(one.job_id, one.HasField("error")) for one in answers] == [
        ("a", False), ("b", True), ("c", True), ("d", False),
    ]  # fmt: skip
    fault, duplicate = (error_from_wire(answers[n].error) for n in (1, 2))
    assert type(fault) is QueueError
    # What the store says of itself is no business of callers.
    assert "of the store" not in fault.message
    assert isinstance(duplicate, DuplicateJob)


async def test_where_the_store_was_away_the_call_is_to_be_repeated() -> None:
    shelf = Shelf({"b": Unavailable("away")})
    with pytest.raises(Unavailable):
        await submit(shelf, "a", "b", "c")
    # Nobody was left half done.
    assert shelf.stored == ["a", "c"]
