"""Two stores that are asked the same, and compared after every step."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.model.events import lives
from tests.model.sides import Side
from tests.model.telling import differences, tell

from queue_operator.domain.errors import QueueError
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.states import JobState

NAMESPACES: Final = ("default", "other")
IDS: Final = ("a", "b", "c", "d", "e")
T = TypeVar("T")
Name = tuple[str, str]


@dataclass
class Pair:
    """The model and the store that is held against it. `jobs` are the model's after the last
    step, `claims` the jobs that were claimed, in order.
    """

    model: Side
    other: Side
    steps: int = 0
    agree: bool = True
    jobs: dict[Name, Job] = field(default_factory=dict)
    claims: list[Name] = field(default_factory=list)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.model, self.other

    async def step(self, call: Callable[[Side], Awaitable[Any]]) -> None:
        """Makes the call on both sides; asserts equal answers, and equal stores after it."""
        self.steps += 1
        told = [tell(await self._answer(side, call), side) for side in self.sides]
        self._compare("the answers", *told)
        await self._compare_jobs()

    async def claiming(self, call: Callable[[Side], Awaitable[list[T]]]) -> None:
        """A step that gives out jobs: `call` gives what tells of each, in order."""

        async def noting(side: Side) -> list[T]:
            given = await call(side)
            for one in given:
                side.tokens.append(await _token_of(side, one))
                if side is self.model:
                    self.claims.append((one.namespace, _id_of(one)))  # type: ignore[attr-defined]
            return given

        await self.step(noting)

    async def age(self, seconds: float, outage: bool) -> None:
        self.steps += 1
        for side in self.sides:
            await side.age(seconds, outage)
        await self._compare_jobs()

    async def _answer(self, side: Side, call: Callable[[Side], Awaitable[Any]]) -> Any:
        side.begin()
        try:
            return await call(side)
        except QueueError as error:
            return error
        finally:
            side.end()

    def _compare(self, what: str, ours: Any, theirs: Any) -> None:
        if found := list(differences(ours, theirs)):
            names = f"{self.model.name} / {self.other.name}"
            raise AssertionError("\n".join([f"{what} differ ({names}):", *found]))

    async def _compare_jobs(self) -> None:
        stores = [await _jobs(side) for side in self.sides]
        records = [
            {"/".join(name): tell(job, side) for name, job in jobs.items()}
            for jobs, side in zip(stores, self.sides, strict=True)
        ]
        self._compare("the jobs", *records)
        for space in NAMESPACES:
            stats = [
                tell(await s.backend.get_job_stats([], namespace=space), s) for s in self.sides
            ]
            self._compare("the counts", *stats)
        before, self.jobs = self.jobs, stores[0]
        for name, job in self.jobs.items():
            if before.get(name) != job:
                await self._compare_history(*name)

    async def _compare_history(self, namespace: str, job_id: str) -> None:
        told = [
            tell(await side.backend.get_history(job_id, namespace=namespace), side)
            for side in self.sides
        ]
        self._compare(f"the histories of {job_id}", *told)

    async def finish(self) -> None:
        """Asserts what is too slow to be asked after every step."""
        for name in self.jobs:
            await self._compare_history(*name)
        self._compare("the events", *[await lives(side) for side in self.sides])
        for side in self.sides:
            assert await side.store.faults() == []

    async def close(self) -> None:
        for side in self.sides:
            await side.store.close()

    # What steps need to know of the jobs

    def newest_claim(self, name: Name) -> int | None:
        """The number of the last claim of a job."""
        mine = [n for n, claimed in enumerate(self.claims) if claimed == name]
        return mine[-1] if mine else None

    def waits(self, name: Name) -> bool:
        """Whether the job still waits for others."""
        job = self.jobs.get(name)
        return job is not None and job.waiting_for_dependencies

    def state(self, name: Name) -> JobState | None:
        return self.jobs[name].state if name in self.jobs else None


def _id_of(given: Any) -> str:
    return given.job_id if isinstance(given, Assignment) else given.id


async def _token_of(side: Side, given: Any) -> str:
    """An assignment has it; that of a job that was dequeued is only in its history."""
    if isinstance(given, Assignment):
        return given.token
    history = await side.backend.get_history(given.id, namespace=given.namespace)
    return history.attempts[-1].token


async def _jobs(side: Side) -> dict[Name, Job]:
    found: dict[Name, Job] = {}
    for space in NAMESPACES:
        stored = await side.backend._get(space, list(IDS))
        found |= {(space, job_id): stored[job_id] for job_id in IDS if job_id in stored}
    return found
