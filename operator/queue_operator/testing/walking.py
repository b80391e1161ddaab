"""Calls that are cancelled wherever they wait, one place after the other."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
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


@dataclass(frozen=True, slots=True, repr=False)
class Walked(Generic[Subject, Answer]):
    """A call on something of its own. `answers` is empty when it was cancelled."""

    subject: Subject
    when: When
    place: int
    answers: tuple[Answer, ...]

    @property
    def cancelled(self) -> bool:
        return not self.answers

    def __repr__(self) -> str:
        return f"cancelled {self.when} its wait {self.place}"


async def walk(
    bring: Callable[[], Awaitable[Subject]], call: Callable[[Subject], Awaitable[Answer]]
) -> AsyncGenerator[Walked[Subject, Answer], None]:
    """Calls again and again, each time on what `bring` makes, and cancels each call one place
    later than the last, until one is through before its place; in each of the three ways.

    Each call is yielded as soon as it is over, so whoever checks it there meets nothing that a
    later call has done. What a call raises by itself is raised.
    """
    for when in When:
        place, reached = 1, True
        while reached:
            assert place < _MOST_PLACES, "the call never comes to its end"
            subject = await bring()
            if when is When.WHILE:
                reached, answers = await cancelled_after(place, call(subject))
            else:
                reached, answers = await _Waits(call(subject), when, place).run()
            yield Walked(subject, when, place, answers)
            # A loop that has nothing else to do turns very often while the store is at work.
            place += 1 + (place // 4 if when is When.WHILE else 0)


async def cancelled_after(turns: int, call: Awaitable[Answer]) -> tuple[bool, tuple[Answer, ...]]:
    """Cancels a call after so many turns of the loop, of which it begins with the first. Whether
    it was still going on then, and its answer, if it gave one.

    What it raises by itself is raised.
    """
    calling = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    going_on = not calling.done()
    calling.cancel()
    return going_on, await _answers(calling)


async def _answers(calling: "asyncio.Future[Answer]") -> tuple[Answer, ...]:
    await asyncio.wait([calling])
    return () if calling.cancelled() else (calling.result(),)


class _Waits(Generic[Answer]):
    """Runs a call in a task of its own, and cancels it at one of the places where it waits."""

    def __init__(self, call: Awaitable[Answer], when: When, place: int) -> None:
        self._call = call
        self._when = when
        self._place = place
        self._reached = False

    async def run(self) -> tuple[bool, tuple[Answer, ...]]:
        """Whether the call came to the place, and its answer, if it gave one."""
        answers = await _answers(asyncio.create_task(self._steps()))
        return self._reached, answers

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
        self._reached = True
        if self._when is When.BEFORE or awaited is None:
            task.cancel()
        else:
            # Added before the task waits, so that it is cancelled before it is told.
            awaited.add_done_callback(lambda _: task.cancel())
