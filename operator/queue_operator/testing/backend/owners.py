"""Tokens in other hands than those they were given to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest

from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.lease import Held, LeaseStatus
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import apply, claim, running, settle, submitted
from queue_operator.testing.store import TTL_S, Contract, Store

_OUTCOMES: Final = [
    Event.COMPLETE,
    Event.FAIL,
    Event.EXHAUST,
    Event.STOP,
    Event.HAND_BACK,
    Event.RELEASE,
]


@dataclass(frozen=True, slots=True)
class Word:
    """What a session says of a job, over a backend; and whether it was heard."""

    backend: Contract
    job: Job
    token: str
    assignee_id: str | None

    async def settled(self, event: Event) -> bool:
        outcome = Outcome(
            self.job.id,
            event,
            token=self.token,
            error=ErrorInfo("x"),
            assignee_id=self.assignee_id,
        )
        answer = await settle(self.backend, outcome)
        assert answer.error is None or isinstance(answer.error, StaleLease)
        return answer.error is None

    async def renewed(self) -> bool:
        held = Held(self.job.id, self.token, assignee_id=self.assignee_id)
        [answer] = await self.backend.extend_leases([held], lease_ttl_s=TTL_S)
        # It is told in the words it was asked in.
        assert (answer.job_id, answer.token) == (held.job_id, held.token)
        assert answer.status in (LeaseStatus.CURRENT, LeaseStatus.TAKEN_OVER)
        return answer.status is LeaseStatus.CURRENT


Said = Callable[[Word], Awaitable[bool]]
_SAID: Final[dict[str, Said]] = {
    **{event.value: (lambda word, e=event: word.settled(e)) for event in _OUTCOMES},  # type: ignore[misc]
    "heartbeat": Word.renewed,
}


SPEAKERS: Final = ["the process that claimed it", "another"]


async def speaking(store: Store, backend: Contract, speaker: str) -> Word:
    """A session that has a running job, and the backend that it speaks to."""
    job, token = await running(backend)
    return Word(await store.open() if speaker == "another" else backend, job, token, "worker-1")


async def check_heard(word: Word, said: Said) -> None:
    """Asserts that its session is heard, and no other."""
    before = await word.backend.get_job(word.job.id)
    assert not await said(replace(word, assignee_id="worker-2"))
    assert await word.backend.get_job(word.job.id) == before
    assert await said(word)


@proves("queue-semantics.Fencing.rule.1")
@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("said", _SAID.values(), ids=_SAID)
async def test_a_session_is_heard_only_of_its_own_jobs(
    store: Store, backend: Contract, speaker: str, said: Said
) -> None:
    await check_heard(await speaking(store, backend, speaker), said)


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("said", _SAID.values(), ids=_SAID)
async def test_whoever_is_no_session_is_heard_with_the_token_alone(
    store: Store, backend: Contract, speaker: str, said: Said
) -> None:
    word = await speaking(store, backend, speaker)
    assert await said(replace(word, assignee_id=None))


async def test_of_a_batch_only_the_foreign_words_are_not_heard(backend: Contract) -> None:
    jobs = [await running(backend) for _ in range(4)]
    other = await submitted(backend)
    foreign = (await claim(backend, other, "worker-2")).token
    outcomes = [
        Outcome(job.id, Event.COMPLETE, token=token, assignee_id="worker-1") for job, token in jobs
    ]
    outcomes.insert(2, Outcome(other.id, Event.COMPLETE, token=foreign, assignee_id="worker-1"))
    answers = await backend.settle(outcomes)
    assert [answer.job_id for answer in answers] == [outcome.job_id for outcome in outcomes]
    assert [answer.error is None for answer in answers] == [True, True, False, True, True]
    assert (await backend.get_job(other.id)).state is JobState.RUNNING


@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL])
async def test_a_repeat_is_known_in_the_hands_of_its_session_only(
    store: Store, backend: Contract, event: Event
) -> None:
    job, token = await running(backend)
    await apply(backend, job, event, token)
    # One that knows nothing of the claim.
    other = await store.open()
    mine = Outcome(job.id, event, token=token, error=ErrorInfo("x"), assignee_id="worker-1")
    assert (await settle(other, mine)).repeated
    theirs = await settle(await store.open(), mine._replace(assignee_id="worker-2"))
    assert isinstance(theirs.error, StaleLease)


@pytest.mark.parametrize("assignee", ["worker-1", "worker-2"])
async def test_a_late_outcome_counts_for_the_session_that_had_the_job(
    store: Store, backend: Contract, assignee: str
) -> None:
    job, token = await running(backend)
    await backend.mark_worker_unresponsive("worker-1")
    late = Outcome(job.id, Event.COMPLETE, token=token, assignee_id=assignee)
    answer = await settle(await store.open(), late)
    assert (answer.state is JobState.COMPLETED) is (assignee == "worker-1")


@pytest.mark.parametrize("token", ["", "no token at all", "f" * 32, "0" * 32])
async def test_what_no_job_ever_had_is_stale_in_any_hands(backend: Contract, token: str) -> None:
    job, _ = await running(backend)
    assert not await Word(backend, job, token, "worker-1").settled(Event.COMPLETE)
    assert not await Word(backend, job, token, "worker-1").renewed()
