"""Answers of a reviewer are kept for a while, and asked for once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from queue_operator.auth.answers import AWAY_S, Answers
from queue_operator.domain.errors import Unavailable


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


class Away:
    """A reviewer that may be away, and says which of its answers last through that."""

    def __init__(self) -> None:
        self.now, self.asked, self.is_away = 0.0, 0, False
        self.answers: Answers[str, str] = Answers(
            lambda _: 10.0,
            lambda: self.now,
            outage_s=lambda answer: 600.0 if answer == "known" else 0.0,
        )

    async def ask(self, answer: str) -> str:
        self.asked += 1
        if self.is_away:
            raise Unavailable("nobody answers")
        return answer

    async def get(self, answer: str) -> str:
        return await self.answers.get(answer, lambda: self.ask(answer))


async def test_while_the_reviewer_is_away_what_it_said_counts_for_a_while() -> None:
    reviewer = Away()
    for answer in ("known", "refused"):
        assert await reviewer.get(answer) == answer
    reviewer.is_away, reviewer.now = True, 11.0
    assert await reviewer.get("known") == "known"
    for answer in ("refused", "never asked"):
        with pytest.raises(Unavailable):
            await reviewer.get(answer)
    reviewer.now = 599.9
    assert await reviewer.get("known") == "known"
    reviewer.now = 600.0
    with pytest.raises(Unavailable):
        await reviewer.get("known")


async def test_once_it_is_back_its_answers_count_at_once() -> None:
    reviewer = Away()
    assert await reviewer.get("known") == "known"
    reviewer.is_away, reviewer.now = True, 11.0
    assert await reviewer.get("known") == "known"
    reviewer.is_away = False
    assert await reviewer.get("other") == "other"
    revoked: list[str] = []

    async def ask() -> str:
        revoked.append("asked")
        return "refused"

    assert await reviewer.answers.get("known", ask) == "refused"
    assert revoked == ["asked"]


async def test_while_it_is_known_to_be_away_nobody_waits_for_it() -> None:
    reviewer = Reviewer()
    answers: Answers[str, str] = Answers(
        lambda _: 10.0, lambda: reviewer.now, outage_s=lambda _: 600.0
    )
    reviewer.may_answer.set()
    assert await answers.get("key", reviewer.ask) == "answer 1"
    reviewer.now = 10.0

    async def nobody() -> str:
        raise Unavailable("nobody answers")

    assert await answers.get("key", nobody) == "answer 1"
    # The next question hangs, and its caller does not.
    reviewer.may_answer.clear()
    answered = asyncio.Event()

    async def slowly() -> str:
        answer = await reviewer.ask()
        answered.set()
        return answer

    assert await answers.get("key", slowly) == "answer 1"
    reviewer.may_answer.set()
    await answered.wait()
    assert await answers.get("key", slowly) == "answer 2"


async def test_a_reviewer_that_was_away_long_ago_is_asked_before_an_old_answer_counts() -> None:
    reviewer = Away()
    assert await reviewer.get("known") == "known"
    reviewer.is_away, reviewer.now = True, 11.0
    assert await reviewer.get("known") == "known"
    reviewer.is_away, reviewer.now = False, 11.0 + AWAY_S

    async def ask() -> str:
        return "refused"

    assert await reviewer.answers.get("known", ask) == "refused"


async def test_one_question_at_a_time_looks_whether_it_is_back() -> None:
    reviewer = Away()
    for key in ("a", "b", "c"):
        assert await reviewer.answers.get(key, lambda: reviewer.ask("known")) == "known"
    reviewer.is_away, reviewer.now = True, 11.0
    assert await reviewer.answers.get("a", lambda: reviewer.ask("known")) == "known"
    asked: list[str] = []
    silent = asyncio.Event()

    def hanging(key: str) -> Callable[[], Awaitable[str]]:
        async def hang() -> str:
            asked.append(key)
            await silent.wait()
            return "known"

        return hang

    for key in ("a", "b", "c", "a"):
        assert await reviewer.answers.get(key, hanging(key)) == "known"
        await asyncio.sleep(0)
    assert asked == ["a"]
    silent.set()
