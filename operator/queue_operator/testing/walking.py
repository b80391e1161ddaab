"""Calls that are cancelled wherever they wait, one place after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any, Final, Generic, TypeVar

Subject = TypeVar("Subject")
Answer = TypeVar("Answer")

_MOST_PLACES: Final = 1_000_000


class When(StrEnum):
    """When the cancellation comes, of the place where the call waits."""

    BEFORE = "before"
    """As soon as it waits: what it asked for may be under way already."""
    WITH = "with"
    """Together with what it waits for: that has happened, and it is not told."""
    WHILE = "while"
    """After so many turns of the loop, ever more of them, wherever it is by then."""


@dataclass(frozen=True, slots=True)
class Walked(Generic[Subject, Answer]):
    """A call on something of its own. `answers` is empty when it was cancelled."""

    subject: Subject
    when: When
    place: int
    answers: tuple[Answer, ...]

    @property
    def cancelled(self) -> bool:
        return not self.answers

    def __str__(self) -> str:
        return f"cancelled {self.when} its wait {self.place}"


async def walk(
    bring: Callable[[], Awaitable[Subject]], call: Callable[[Subject], Awaitable[Answer]]
) -> list[Walked[Subject, Answer]]:
    """Calls again and again, each time on what `bring` makes, and cancels each call one place
    later than the last, until one is through before its place; in each of the three ways.

    What a call raises by itself is raised.
    """
    walked: list[Walked[Subject, Answer]] = []
    for when in When:
        place, reached = 1, True
        while reached:
            assert place < _MOST_PLACES, "the call never comes to its end"
            subject = await bring()
            waits = _Waits(call(subject), when, place)
            answers = await waits.run()
            walked.append(Walked(subject, when, place, answers))
            reached = waits.reached
            # A loop that has nothing else to do turns very often while the store is at work.
            place += 1 + (place // 4 if when is When.WHILE else 0)
    return walked


class _Waits(Generic[Answer]):
    """Runs a call in a task of its own, and cancels it at one of the places where it waits."""

    def __init__(self, call: Awaitable[Answer], when: When, place: int) -> None:
        self._call = call
        self._when = when
        self._place = place
        self.reached = False

    async def run(self) -> tuple[Answer, ...]:
        way = self._turns if self._when is When.WHILE else self._steps
        task = asyncio.create_task(way())
        await asyncio.wait([task])
        return () if task.cancelled() else (task.result(),)

    async def _turns(self) -> Answer:
        calling = asyncio.ensure_future(self._call)
        # The task begins with the first.
        for _ in range(self._place):
            await asyncio.sleep(0)
        self.reached = not calling.done()
        calling.cancel()
        return await calling

    async def _steps(self) -> Answer:
        return await self

    def __await__(self) -> Generator[Any, Any, Answer]:
        """Does what the task would do with the call, and sees each of its waits pass by."""
        waiting = self._call.__await__()
        go_on: Callable[[], Any] = partial(next, waiting)
        for place in count(1):
            try:
                awaited = go_on()
            except StopIteration as end:
                answer: Answer = end.value
                break
            if place == self._place:
                self._cancel_at(awaited)
            try:
                yield awaited
                go_on = partial(next, waiting)
            except BaseException as error:
                go_on = partial(waiting.throw, error)
        return answer

    def _cancel_at(self, awaited: "asyncio.Future[Any] | None") -> None:
        task = asyncio.current_task()
        assert task is not None
        self.reached = True
        if self._when is When.BEFORE or awaited is None:
            task.cancel()
        else:
            # Added before the task waits, so that it is cancelled before it is told.
            awaited.add_done_callback(lambda _: task.cancel())
