"""What the checker says of handlers that start when they must not, and of what they leave."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.protocol import LogReport, SpawnRequest
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.running import LogLine
from queue_operator.domain.states import Event
from queue_operator.testing.driving import claim, running, submitted
from queue_operator.testing.history import (
    History,
    Kind,
    Log,
    Rule,
    Takeover,
    Violation,
    check,
    digest,
    read_store,
    recorded_handler,
    takeovers,
)


class Clock:
    """Of the store and of the log, so that what is later is told later."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def date(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def seconds(self) -> float:
        return self.date().timestamp()


class Told:
    """A store, and a log of one worker of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.backend = MemoryBackend(clock=self.clock.date)
        self.log = Log("worker-1", clock=self.clock.seconds)

    async def history(self) -> History:
        jobs = await read_store(self.backend)
        return History(self.log.records, jobs, quiet=False, statement_s=0.0, transaction_s=0.0)

    async def found(self) -> list[Violation]:
        return check(await self.history())

    async def rules(self) -> list[Rule]:
        return [violation.rule for violation in await self.found()]

    def start(self, job: Job, token: str, checkpoint: bytes | None = None) -> None:
        with recorded_handler(self.log, job.id, "s", token, checkpoint):
            pass


@pytest.fixture
def told() -> Told:
    return Told()


async def test_a_token_runs_once(told: Told) -> None:
    job, token = await running(told.backend)
    told.start(job, token)
    assert await told.rules() == []
    told.start(job, token)
    assert await told.rules() == [Rule.TOKEN_ONCE]


async def test_what_was_answered_does_not_begin(told: Told) -> None:
    job, token = await running(told.backend)
    told.log.write(Kind.OUTCOME_SENT, job.id, token, outcome="HAND_BACK")
    told.start(job, token)
    assert await told.rules() == [Rule.TOKEN_ONCE]


async def test_what_is_completed_does_not_start_under_its_token(told: Told) -> None:
    job, token = await running(told.backend)
    await told.backend.complete_job(job.id, b"", token=token)
    told.start(job, token)
    assert await told.rules() == [Rule.COMPLETED_ONCE]


async def test_a_lost_lease_may_start_late_until_its_worker_was_told(told: Told) -> None:
    """Its assignment was on the way: nobody can keep a worker from starting it."""
    job, lost = await lost_and_completed(told.backend)
    told.start(job, lost)
    assert await told.rules() == []
    told.log.records.clear()
    told.log.write(Kind.LEASE_ANSWERED, job.id, lost, status="TAKEN_OVER")
    told.start(job, lost)
    assert await told.rules() == [Rule.COMPLETED_ONCE]


@pytest.mark.parametrize(("asked_after_s", "rules"), [(3.0, []), (6.0, [Rule.ONE_LEASE])])
async def test_a_lease_is_current_until_somebody_is_told_of_its_end(
    told: Told, asked_after_s: float, rules: list[Rule]
) -> None:
    """The process that ended it was frozen for four seconds before its transaction was done."""
    job, token = await running(told.backend)
    told.start(job, token)
    told.log.write(Kind.OUTCOME_SENT, job.id, token, outcome="STOP")
    await told.backend.stop_job(job.id, "", token=token)
    asked_at = told.clock.seconds() + asked_after_s
    told.log.write(Kind.LEASE_ANSWERED, job.id, token, status="CURRENT", asked_at=asked_at)
    told.clock.now += timedelta(seconds=4)
    told.log.write(Kind.OUTCOME_ACKNOWLEDGED, job.id, token, outcome="STOP", state="STOPPED")
    assert await told.rules() == rules


@pytest.mark.parametrize("repeated", [False, True])
async def test_a_lease_is_over_soon_after_its_end_also_if_nobody_was_told_then(
    told: Told, *, repeated: bool
) -> None:
    job, token = await running(told.backend)
    told.start(job, token)
    told.log.write(Kind.OUTCOME_SENT, job.id, token, outcome="STOP")
    await told.backend.stop_job(job.id, "", token=token)
    asked_at = told.clock.seconds()
    told.log.write(Kind.LEASE_ANSWERED, job.id, token, status="CURRENT", asked_at=asked_at)
    if repeated:
        told.log.write(Kind.OUTCOME_SENT, job.id, token, outcome="STOP")
        told.log.write(Kind.OUTCOME_ACKNOWLEDGED, job.id, token, outcome="STOP", state="STOPPED")
    assert await told.rules() == [Rule.ONE_LEASE]


async def lost_and_completed(backend: MemoryBackend) -> tuple[Job, str]:
    job, first = await running(backend)
    await backend.settle([Outcome(job.id, Event.LOSE, token=first)])
    second = await claim(backend, job, "other")
    await backend.complete_job(job.id, b"", token=second.token)
    return job, first


async def resumed(told: Told) -> tuple[Job, str]:
    """An attempt that stored one checkpoint and was told so, and one more whose answer was lost;
    and the token of the next.
    """
    job, first = await running(told.backend)
    for number, data in enumerate((b"one", b"two", b"three"), 1):
        state = digest(data)
        told.log.write(Kind.CHECKPOINT_SENT, job.id, first, number=number, state=state)
        if number < 3:
            told.log.write(Kind.CHECKPOINT_ACKNOWLEDGED, job.id, first, state=state)
    await told.backend.settle([Outcome(job.id, Event.LOSE, token=first)])
    return job, (await claim(told.backend, job, "other")).token


@pytest.mark.parametrize(
    ("seen", "rules"),
    [
        (b"two", []),
        (b"three", []),
        (b"one", [Rule.CHECKPOINT_KEPT]),
        (None, [Rule.CHECKPOINT_KEPT]),
        (b"", [Rule.CHECKPOINT_KEPT]),
        (b"of another job", [Rule.CHECKPOINT_KEPT]),
    ],
)
async def test_an_attempt_starts_from_the_last_acknowledged_checkpoint(
    told: Told, seen: bytes | None, rules: list[Rule]
) -> None:
    job, token = await resumed(told)
    told.start(job, token, seen)
    assert await told.rules() == rules


async def test_a_job_that_had_ended_starts_anew(told: Told) -> None:
    job, token = await running(told.backend)
    told.log.write(Kind.CHECKPOINT_ACKNOWLEDGED, job.id, token, state=digest(b"one"))
    told.log.write(Kind.CHECKPOINT_SENT, job.id, token, number=1, state=digest(b"one"))
    await told.backend.settle([Outcome(job.id, Event.EXHAUST, token=token)])
    await told.backend.settle([Outcome(job.id, Event.RETRY_NOW)])
    told.start(job, (await claim(told.backend, job, "other")).token)
    assert await told.rules() == []


async def test_a_child_is_there_once_and_its_parents(told: Told) -> None:
    parent, token = await running(told.backend)
    child = Job(id="", type="child")
    request = SpawnRequest(parent_id=parent.id, token=token, key="k", job=child)
    [answer] = await told.backend.spawn([request])
    told.log.write(Kind.SPAWN_SENT, parent.id, token, key="k")
    told.log.write(Kind.SPAWN_ACKNOWLEDGED, parent.id, token, key="k", child=answer.job_id)
    assert await told.rules() == []

    told.log.write(Kind.SPAWN_ACKNOWLEDGED, parent.id, token, key="k", child=parent.id)
    texts = [violation.text for violation in await told.found()]
    assert [text.split(":")[0] for text in texts[:1]] == [
        "its child k was acknowledged under several ids"
    ]
    assert "belongs to nobody" in texts[1]

    told.log.records.pop()
    told.log.write(Kind.SPAWN_ACKNOWLEDGED, parent.id, token, key="m", child="lost")
    assert "the store has no job lost" in "".join(one.text for one in await told.found())

    told.log.records.pop()
    await told.backend.spawn([replace(request, key="of nobody")])
    [double] = await told.found()
    assert "asked for 1 children, and the store has 2" in double.text


async def test_stored_lines_are_those_that_were_said(told: Told) -> None:
    job, token = await running(told.backend)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    line = LogLine(number=1, at=at, level="INFO", message="said")
    await told.backend.append_logs([LogReport(job_id=job.id, token=token, lines=(line,))])
    told.log.write(Kind.LINE_SENT, job.id, token, number=1, text=digest(b"said"))
    assert await told.rules() == []
    other = replace(line, number=2, message="never said")
    await told.backend.append_logs([LogReport(job_id=job.id, token=token, lines=(other,))])
    assert await told.rules() == [Rule.LINES_KEPT]


async def test_an_attempt_that_a_caller_took_away_need_not_count_whatever_its_worker_says(
    told: Told,
) -> None:
    job, token = await running(told.backend)
    await told.backend.mark_worker_unresponsive("worker-1")
    await told.backend.fail_job(job.id, "late", token=token)
    again = await claim(told.backend, job, "other")
    assert again.attempt == 1
    assert await told.rules() == []
    await told.backend.fail_job(job.id, "in time", token=again.token)
    third = await claim(told.backend, job, "other")
    history = await told.history()
    stored = history.jobs[job.id]
    wrong = [*stored.attempts[:2], replace(stored.attempts[2], number=third.attempt - 1)]
    cut = {job.id: replace(stored, attempts=tuple(wrong))}
    found = {one.text for one in check(replace(history, jobs=cut))}
    assert "attempt 1 ended with FAIL and the next one was counted as attempt 1" in found


async def test_a_claim_without_an_attempt_is_told_of(told: Told) -> None:
    job, _ = await running(told.backend)
    history = await told.history()
    cut = {job.id: replace(history.jobs[job.id], attempts=())}
    [violation] = check(replace(history, jobs=cut))
    assert (violation.rule, "1 claims, and 0 attempts" in violation.text) == (Rule.ATTEMPTS, True)
    assert list(cut[job.id].holdings()) == []


async def two_at_once(told: Told, *handed_out: int) -> None:
    """Of a stream with one slot; the second goes back at once."""
    told.log.write(Kind.STREAM_OPENED, assignee_id="s", capacity=1)
    jobs = [await submitted(told.backend, type=name) for name in ("first", "second")]
    tokens = [(await claim(told.backend, job, "s")).token for job in jobs]
    for place in handed_out:
        told.log.write(Kind.ASSIGNED, jobs[place].id, tokens[place], assignee_id="s")
    await told.backend.settle([Outcome(jobs[1].id, Event.RELEASE, token=tokens[1])])


async def test_a_stream_has_no_more_jobs_than_slots(told: Told) -> None:
    await two_at_once(told, 0, 1)
    assert Rule.CAPACITY in await told.rules()


async def test_what_a_stale_replica_claimed_and_gave_back_takes_no_slot(told: Told) -> None:
    await two_at_once(told, 0)
    assert await told.rules() == []


async def killed(told: Told, job: Job) -> Takeover:
    told.log.write(Kind.STREAM_OPENED, assignee_id="dead", capacity=1)
    token = (await claim(told.backend, job, "dead")).token
    told.log.write(Kind.KILLED, killed="worker-1")
    await told.backend.settle([Outcome(job.id, Event.LOSE, token=token)])
    [found] = takeovers(await told.history())
    return found


async def test_a_takeover_that_never_came_is_not_one_that_took_no_time(told: Told) -> None:
    job = await submitted(told.backend)
    found = await killed(told, job)
    assert (found.waited_s, found.again_at, found.is_missing) == (None, None, True)
    await told.backend.cancel_jobs([], [job.id])
    [ended] = takeovers(await told.history())
    assert (ended.waited_s, ended.is_missing) == (None, False)
    assert ended.left_at is not None
