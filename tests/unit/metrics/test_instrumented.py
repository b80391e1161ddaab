"""A measured backend does what the backend does, and is what it is."""

from collections.abc import AsyncIterator, Collection, Sequence

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key

from queue_operator.backends.protocol import (
    CancelInbox,
    Depths,
    News,
    QueueDepth,
    Signals,
    TakenIn,
    Topic,
)
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import Event, JobState
from queue_operator.metrics.instrumented import instrument
from queue_operator.metrics.labels import LabelBudget
from queue_operator.metrics.recorder import Recorder


class Part:
    """Some methods of a backend, with two of the capabilities."""

    limit = 3

    def __init__(self) -> None:
        self.beside = object()

    @property
    def name(self) -> str:
        return "part"

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]:
        return [job.id for job in jobs]

    async def take_in(self, jobs: Sequence[Job]) -> TakenIn:
        return TakenIn(new=[job.id for job in jobs if job.id != "old"])

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        return [
            Settled(each.job_id, each.namespace, error=StaleLease(each.job_id))
            if each.job_id == "old"
            else Settled(each.job_id, each.namespace, JobState.COMPLETED)
            for each in outcomes
        ]

    async def complete_job(
        self, job_id: str, result: bytes, *, namespace: str = "default", token: str | None = None
    ) -> dict[str, int]:
        if token == "old":
            raise StaleLease(job_id)
        return {"w": 1}

    async def queue_depth(self) -> QueueDepth:
        return QueueDepth()

    async def _listening(self) -> AsyncIterator[News]:
        yield {Topic.READY: None}

    def listen(self) -> AsyncIterator[News]:
        return self._listening()

    def names(self, given: Collection[str]) -> list[str]:
        return sorted(given)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def part(registry: CollectorRegistry) -> Part:
    return instrument(Part(), Recorder(registry, LabelBudget()))


def jobs(*ids: str) -> list[Job]:
    return [Job(id=each, type="mail", namespace="ns") for each in ids]


def test_it_has_the_capabilities_of_the_backend_and_no_others(part: Part) -> None:
    assert isinstance(part, Depths)
    assert isinstance(part, Signals)
    assert not isinstance(part, CancelInbox)
    assert not hasattr(part, "pending_cancels")


async def test_what_is_no_call_to_the_store_passes_through(part: Part) -> None:
    assert part.name == "part"
    assert part.limit == 3
    assert part.names({"b", "a"}) == ["a", "b"]
    assert [topics async for topics in part.listen()] == [{Topic.READY: None}]


def test_what_an_instance_has_beside_its_class_passes_through(part: Part) -> None:
    assert type(part.beside) is object


async def test_calls_are_counted(part: Part, registry: CollectorRegistry) -> None:
    assert await part.enqueue_jobs(jobs=jobs("a", "b")) == ["a", "b"]
    assert (await part.take_in(jobs("old", "new"))).new == ["new"]
    assert await part.complete_job("a", b"", namespace="ns") == {"w": 1}
    found = exposition.of(registry)
    for method in ("enqueue_jobs", "take_in", "complete_job"):
        assert found[key("queueoperator_store_call_seconds_count", method=method)] == 1


async def test_refused_outcomes_are_counted(part: Part, registry: CollectorRegistry) -> None:
    answers = await part.settle([Outcome(each, Event.COMPLETE, "ns") for each in ("a", "old")])
    assert [answer.state for answer in answers] == [JobState.COMPLETED, None]
    with pytest.raises(StaleLease):
        await part.complete_job("a", b"", namespace="ns", token="old")
    found = exposition.of(registry)
    assert found[key("queueoperator_stale_outcomes_total", namespace="ns")] == 2
    assert (
        found[key("queueoperator_store_errors_total", method="complete_job", code="stale_lease")]
        == 1
    )


async def test_a_wrong_call_is_the_callers_error(part: Part) -> None:
    with pytest.raises(TypeError):
        await part.complete_job("a")  # type: ignore[call-arg]
