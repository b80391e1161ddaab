"""Answers of a reviewer are kept for a while, and asked for once."""

import asyncio
from dataclasses import dataclass, field

import pytest

from queue_operator.auth.answers import Answers


@dataclass
class Reviewer:
    """Answers when told to, and counts how often it was asked."""

    asked: int = 0
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    now: float = 0.0

    async def ask(self) -> str:
        self.asked += 1
        self.was_asked.set()
        number = self.asked
        await self.may_answer.wait()
        return f"answer {number}"

    def answers(self, size: int = 10) -> Answers[str, str]:
        return Answers(lambda _: 10.0, lambda: self.now, size)


async def test_an_answer_is_reused_until_its_time_is_over() -> None:
    reviewer = Reviewer()
    reviewer.may_answer.set()
    answers = reviewer.answers()
    assert await answers.get("key", reviewer.ask) == "answer 1"
    reviewer.now = 9.9
    assert await answers.get("key", reviewer.ask) == "answer 1"
    reviewer.now = 10.0
    assert await answers.get("key", reviewer.ask) == "answer 2"


async def test_concurrent_questions_are_asked_once() -> None:
    reviewer = Reviewer()
    answers = reviewer.answers()
    tasks = [asyncio.create_task(answers.get("key", reviewer.ask)) for _ in range(20)]
    other = asyncio.create_task(answers.get("other", reviewer.ask))
    reviewer.may_answer.set()
    assert set(await asyncio.gather(*tasks)) == {"answer 1"}
    assert await other == "answer 2"


async def test_one_caller_that_gives_up_does_not_disturb_the_others() -> None:
    reviewer = Reviewer()
    answers = reviewer.answers()
    impatient = asyncio.create_task(answers.get("key", reviewer.ask))
    patient = asyncio.create_task(answers.get("key", reviewer.ask))
    await reviewer.was_asked.wait()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    reviewer.may_answer.set()
    assert await patient == "answer 1"


async def test_errors_reach_every_caller_and_are_not_kept() -> None:
    failing = True

    async def ask() -> str:
        if failing:
            raise OSError("down")
        return "up"

    answers: Answers[str, str] = Answers(lambda _: 10.0, lambda: 0.0)
    results = await asyncio.gather(
        answers.get("key", ask), answers.get("key", ask), return_exceptions=True
    )
    assert [str(result) for result in results] == ["down", "down"]
    failing = False
    assert await answers.get("key", ask) == "up"


async def test_the_least_recently_used_answer_is_dropped() -> None:
    reviewer = Reviewer()
    reviewer.may_answer.set()
    answers = reviewer.answers(size=2)
    for key in ("a", "b", "a", "c"):
        await answers.get(key, reviewer.ask)
    assert reviewer.asked == 3
    await answers.get("a", reviewer.ask)
    assert reviewer.asked == 3
    await answers.get("b", reviewer.ask)
    assert reviewer.asked == 4
