"""Single submissions of many callers, stored by one call at a time."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

from queue_operator.backends.protocol import KeyHeld
from queue_operator.backends.splitting import store_apart
from queue_operator.backends.turns import Turns
from queue_operator.domain.batch import unplaced
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job, Submitted

_MOST_JOBS: Final = 500
_MOST_BYTES: Final = 8 * 1024 * 1024
"""Of payloads in one call; a larger one goes alone."""
_MOST_WAITING: Final = 10_000
"""While the store is away, callers wait; those beyond this many are told to come again."""

_Waiting = tuple[Job, "asyncio.Future[Submitted]"]


class Submitting(Protocol):
    """Whoever stores a batch."""

    def __call__(
        self, jobs: Sequence[Job], *, atomic: bool, patient: bool
    ) -> Awaitable[list[Submitted]]: ...


class Gathering:
    """Whoever comes while a call runs goes with the next one. What is wrong with one job is told
    to its caller alone, and whose key somebody else is taking waits alone.
    """

    def __init__(self, submit: Submitting) -> None:
        self._submit = submit
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._held = Turns()

    async def submit(self, job: Job) -> Submitted:
        """The answer for this job. Raises what is wrong with it, and Unavailable."""
        if job.depends_on:
            # In a batch it would take another caller's job for one that it may wait for.
            return _answered(await self._alone(job))
        if len(self._waiting) + self._held.waiting >= _MOST_WAITING:
            raise Unavailable(f"{_MOST_WAITING} submissions wait to be stored; call again later")
        if job.idempotency_key and self._held.is_known(job):
            return _answered(await self._in_turn(job))
        stored: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, stored))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return _answered(await stored)

    async def _flush(self) -> None:
        while self._waiting:
            group = self._take_group()
            if not group:
                continue
            answers = await store_apart(self._store, [job for job, _ in group])
            for one, answer in zip(group, answers, strict=True):
                if isinstance(answer, Submitted) and isinstance(answer.error, KeyHeld):
                    self._held.start(self._tell_alone(one))
                else:
                    _tell(one, answer)

    async def _tell_alone(self, one: _Waiting) -> None:
        try:
            _tell(one, await self._in_turn(one[0]))
        except Exception as error:
            _tell(one, error)

    async def _in_turn(self, job: Job) -> Submitted:
        async with self._held.turn(job):
            return await self._alone(job)

    def _take_group(self) -> list[_Waiting]:
        """Callers with different ids: of two with the same, the second sees how the first did."""
        group: dict[tuple[str, str], _Waiting] = {}
        rest: list[_Waiting] = []
        size = 0
        for one in self._waiting:
            job, stored = one
            if stored.done():
                continue  # whoever waited has gone
            name = job.namespace, job.id
            size += len(job.payload)
            full = len(group) == _MOST_JOBS or (group and size > _MOST_BYTES)
            if full or name in group:
                rest.append(one)
            else:
                group[name] = one
        self._waiting = rest
        return list(group.values())

    async def _store(self, jobs: Sequence[Job]) -> list[Submitted]:
        return await self._submit(jobs, atomic=False, patient=False)

    async def _alone(self, job: Job) -> Submitted:
        [answer] = await self._submit([job], atomic=False, patient=True)
        return answer


def _tell(one: _Waiting, answer: Submitted | Exception) -> None:
    stored = one[1]
    if stored.done():
        return
    if isinstance(answer, Submitted):
        stored.set_result(answer)
    else:
        stored.set_exception(answer)


def _answered(answer: Submitted) -> Submitted:
    if answer.error is not None:
        raise unplaced(answer.error)
    return answer
