"""Bugs, each as small as the ones that people make, planted in the real classes.

Each says which rule must find it. `plant` takes what pytest calls a monkeypatch.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import pytest

from queue_operator.backends import engine, plane_base
from queue_operator.backends.engine import Engine
from queue_operator.backends.memory import shelf
from queue_operator.backends.memory.outbox import MemoryOutbox
from queue_operator.backends.protocol import (
    CheckpointAnswer,
    CheckpointReport,
    LogLine,
    LogReport,
    SpawnRequest,
)
from queue_operator.backends.stored import Stored
from queue_operator.backends.webhooks import Message
from queue_operator.domain import overdue as overdue_
from queue_operator.domain import record, transition
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Assignment, Demand, Job, Submitted
from queue_operator.domain.lease import Held, LeaseAnswer, LeaseStatus, Lost
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import ELIGIBLE, SLOT_HOLDING, Event, JobState
from queue_operator.queue.asks import WorkerAsks
from queue_operator.queue.capacity import Slots
from queue_operator.queue.completer import Completer
from queue_operator.queue.protocol import Push
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream
from queue_operator.testing.history import Rule
from queue_operator.webhooks import body, runner, schedule
from queue_operator.webhooks.posting import Answer

Patch = pytest.MonkeyPatch
_OF: Final = 5


@dataclass(frozen=True, slots=True)
class Planted:
    """`found_by`: at least one of these rules must speak."""

    name: str
    plant: Callable[[Patch], None]
    found_by: frozenset[Rule]

    def __str__(self) -> str:
        return self.name


BUGS: Final[list[Planted]] = []


def bug(name: str, *found_by: Rule) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def note(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS.append(Planted(name, plant, frozenset(found_by)))
        return plant

    return note


def now_and_then() -> Callable[[], bool]:
    """True for every fifth that asks."""
    numbers = count(1)
    return lambda: next(numbers) % _OF == 0


@bug("the token of an outcome is not checked", Rule.NO_STALE_OUTCOME)
def no_token_check(patch: Patch) -> None:
    patch.setattr(transition, "_check_token", lambda current, token: None)


@bug("a slot is forgotten when its job has ended", Rule.SLOTS)
def slot_forgotten(patch: Patch) -> None:
    patch.setattr(Slots, "_drop_if_over", lambda self, key, slot: False)
    patch.setattr(Slots, "settle", lambda self, key, token=None: False)


@bug("an outcome is acknowledged before it is stored, and then lost", Rule.OUTCOME_KEPT)
def acknowledged_before_commit(patch: Patch) -> None:
    loses, real = now_and_then(), Completer._settle

    async def settle(self: Completer, outcomes: Sequence[Outcome]) -> Sequence[Settled]:
        if not loses():
            return await real(self, outcomes)
        answers = [Settled(one.job_id, one.namespace, JobState.COMPLETED) for one in outcomes]
        self._on_settled(outcomes, answers)
        return answers

    patch.setattr(Completer, "_settle", settle)


@bug("a lease is renewed after somebody else took over", Rule.ONE_LEASE)
def lease_renewed_late(patch: Patch) -> None:
    real = Engine._renew

    def renew(self: Engine, held: Held, ttl: Any) -> LeaseAnswer:
        one = self._shelf.get((held.namespace, held.job_id))
        if one is not None and one.job.state in SLOT_HOLDING:
            return LeaseAnswer(held.job_id, held.token, held.namespace, LeaseStatus.CURRENT)
        return real(self, held, ttl)

    patch.setattr(Engine, "_renew", renew)


@bug("the sweeper judges by what it read earlier", Rule.COMPLETED_ONCE, Rule.TABLE)
def completed_is_requeued(patch: Patch) -> None:
    seen: list[Stored] = []
    real = Engine.expire_leases

    async def expire(self: Engine, **options: Any) -> list[Lost]:
        for one in seen:
            if one.job.state is JobState.COMPLETED:
                changes = {"transition": one.job.transition + 1, "finalized_at": None}
                lost = replace(one.job, state=JobState.UNKNOWN_RETRY, **changes)  # type: ignore[arg-type]
                one.become(lost, Event.LOSE, self._now)
        seen[:] = self._shelf.leased()
        return await real(self, **options)

    patch.setattr(Engine, "expire_leases", expire)


@bug("the bound of attempts is not looked at", Rule.ATTEMPTS)
def attempts_without_bound(patch: Patch) -> None:
    patch.setattr(record, "is_used_up", lambda job: False)
    patch.setattr(transition, "failure_event", lambda error, attempt, bound: Event.FAIL)


@bug("the cancel of a running job is answered and forgotten", Rule.CANCEL_KEPT)
def cancel_lost(patch: Patch) -> None:
    patch.setattr(Stored, "ask_to_stop", lambda self, force, reason, now: False)


@bug("a job is given to two workers", Rule.ONE_LEASE, Rule.TABLE)
def given_twice(patch: Patch) -> None:
    real = record.is_claimable

    def is_claimable(job: Job, now: Any) -> bool:
        again = job.state is JobState.RUNNING and job.attempt == 1
        return again or real(job, now)

    patch.setattr(record, "is_claimable", is_claimable)
    patch.setattr(shelf, "ELIGIBLE", (*ELIGIBLE, JobState.RUNNING))


@bug("an event is missing in the log", Rule.EVENTS)
def event_missing(patch: Patch) -> None:
    forgets, real = now_and_then(), Engine._tell_of

    def tell(self: Engine, event: str, *args: Any, **told: Any) -> None:
        if event != Event.CLAIM or not forgets():
            real(self, event, *args, **told)

    patch.setattr(Engine, "_tell_of", tell)


@bug("what a worker brings along takes no slots after a reconnect", Rule.CAPACITY)
def adopted_without_slots(patch: Patch) -> None:
    patch.setattr(JobStream, "_adopt", lambda self, answer, parked: None)


@bug("a submit is acknowledged before it is stored, and then lost", Rule.SUBMIT_KEPT)
def submit_lost(patch: Patch) -> None:
    loses, real = now_and_then(), QueueService.enqueue_job

    async def enqueue_job(self: QueueService, job: Job) -> str:
        return job.id if loses() else await real(self, job)

    patch.setattr(QueueService, "enqueue_job", enqueue_job)


@bug("the result of a worker that was replaced overwrites the stored one", Rule.RESULT_KEPT)
def stale_result_wins(patch: Patch) -> None:
    real = Engine._settle_in_turn

    def settle(self: Engine, outcome: Outcome) -> Settled:
        answer = real(self, outcome)
        one = self._shelf.get((outcome.namespace, outcome.job_id))
        stale = isinstance(answer.error, StaleLease) and outcome.event is Event.COMPLETE
        if stale and one is not None and one.job.state is JobState.COMPLETED:
            one.job = replace(one.job, result=outcome.result)
        return answer

    patch.setattr(Engine, "_settle_in_turn", settle)


@bug("an outcome that is sent again is refused", Rule.OUTCOME_KEPT)
def repeat_not_recognised(patch: Patch) -> None:
    patch.setattr(transition, "_is_repeat", lambda current, outcome: False)


@bug("the jobs of a dead worker are never taken back", Rule.ALL_ENDED)
def never_swept(patch: Patch) -> None:
    def overdue(job: Job, limits: overdue_.Limits, *times: Any) -> Outcome | None:
        return overdue_.overdue(job, replace(limits, expires_at=None), *times)

    patch.setattr(engine, "overdue", overdue)


@bug("a lost attempt is not counted", Rule.ATTEMPTS)
def attempts_not_counted(patch: Patch) -> None:
    real = record.claimed

    def claimed(job: Job, *args: Any) -> Job:
        made = real(job, *args)
        return replace(made, attempt=job.attempt) if job.failure_count else made

    patch.setattr(record, "claimed", claimed)


@bug("an assignment is pushed again after it was delivered", Rule.TOKEN_ONCE)
def pushed_again(patch: Patch) -> None:
    again, real = now_and_then(), JobStream._take_push
    delivered: dict[JobStream, list[Assignment]] = {}

    def take_push(self: JobStream) -> Push:
        push, before = real(self), delivered.setdefault(self, [])
        if before and again():
            self._buffer[before[0].token] = before[0]
        # One that was delivered long enough ago to be over.
        delivered[self] = [*before, *push.assignments][-_OF:]
        return push

    patch.setattr(JobStream, "_take_push", take_push)


@bug("a claim hands out again what was completed meanwhile", Rule.COMPLETED_ONCE)
def completed_handed_out(patch: Patch) -> None:
    again, real = now_and_then(), Engine.claim

    async def claim(self: Engine, demands: Sequence[Demand], **options: Any) -> list[Assignment]:
        found = await real(self, demands, **options)
        done = [job for some in self._shelf.completed_before(self._now, None) for job in some]
        if done and again():
            old = done[-1].assignment()
            found.append(old._replace(assignee_id=demands[0].assignee_id))
        return found

    patch.setattr(Engine, "claim", claim)


@bug("a checkpoint is acknowledged before it is stored, and then lost", Rule.CHECKPOINT_KEPT)
def checkpoint_lost(patch: Patch) -> None:
    loses, real = now_and_then(), WorkerAsks._store

    async def store(
        self: WorkerAsks, reports: Sequence[CheckpointReport]
    ) -> Sequence[CheckpointAnswer]:
        if not loses():
            return await real(self, reports)
        return [CheckpointAnswer(job_id=one.job_id, namespace=one.namespace) for one in reports]

    patch.setattr(WorkerAsks, "_store", store)


@bug("a second checkpoint is acknowledged and does not replace the first", Rule.CHECKPOINT_KEPT)
def checkpoint_not_replaced(patch: Patch) -> None:
    real = Stored.keep

    def keep(self: Stored, token: str, number: int, data: bytes) -> bool:
        before = self.checkpoint
        kept = real(self, token, number, data)
        self.checkpoint = before or self.checkpoint
        return kept

    patch.setattr(Stored, "keep", keep)


@bug("a claim brings no checkpoint along", Rule.CHECKPOINT_KEPT)
def checkpoint_forgotten(patch: Patch) -> None:
    real = record.assignment
    patch.setattr(
        record, "assignment", lambda job, token, parent_result, _: real(job, token, parent_result)
    )


@bug("a parent that runs again gets other children", Rule.CHILD_ONCE)
def children_doubled(patch: Patch) -> None:
    patch.setattr(plane_base, "spawned_id", lambda *about: str(uuid.uuid4()))


@bug("a child is acknowledged before it is stored, and then lost", Rule.CHILD_ONCE)
def child_lost(patch: Patch) -> None:
    loses, real = now_and_then(), WorkerAsks._spawn

    async def spawn(self: WorkerAsks, requests: Sequence[SpawnRequest]) -> Sequence[Submitted]:
        if not loses():
            return await real(self, requests)
        return [Submitted(job_id=f"lost {one.key}") for one in requests]

    patch.setattr(WorkerAsks, "_spawn", spawn)


@bug("a line is stored with the text of the one before it", Rule.LINES_KEPT)
def line_mixed_up(patch: Patch) -> None:
    real, before = Engine.append_logs, ["nothing yet"]

    def mixed(line: LogLine) -> LogLine:
        text = before[0]
        before[0] = line.message
        return replace(line, message=text)

    async def append(self: Engine, reports: Sequence[LogReport]) -> None:
        await real(self, [replace(one, lines=tuple(map(mixed, one.lines))) for one in reports])

    patch.setattr(Engine, "append_logs", append)


@bug("a claim is handed out that was never stored", Rule.KNOWN_TOKEN)
def claim_rolled_back(patch: Patch) -> None:
    forgets, real = now_and_then(), record.assignment

    def assignment(job: Job, token: str, *args: Any) -> Any:
        return real(job, f"not {token}" if forgets() else token, *args)

    patch.setattr(record, "assignment", assignment)


@bug("an end is told to nobody", Rule.MESSAGE_ONCE)
def end_untold(patch: Patch) -> None:
    forgets, real = now_and_then(), MemoryOutbox.add

    def add(self: MemoryOutbox, message: Callable[[int], Message]) -> None:
        if not forgets():
            real(self, message)

    patch.setattr(MemoryOutbox, "add", add)


@bug("an end is told twice", Rule.MESSAGE_ONCE)
def end_told_twice(patch: Patch) -> None:
    repeats, real = now_and_then(), MemoryOutbox.add

    def add(self: MemoryOutbox, message: Callable[[int], Message]) -> None:
        for _ in range(2 if repeats() else 1):
            real(self, message)

    patch.setattr(MemoryOutbox, "add", add)


@bug("two ends have messages of one id", Rule.MESSAGE_ONCE)
def ends_of_one_id(patch: Patch) -> None:
    repeats, real = now_and_then(), MemoryOutbox.add

    def add(self: MemoryOutbox, message: Callable[[int], Message]) -> None:
        before = self.posts.get(self.numbers)
        known = before.message.id if before and repeats() else ""
        real(self, lambda number: replace(message(number), id=known or message(number).id))

    patch.setattr(MemoryOutbox, "add", add)


@bug("a receiver that fails counts as told", Rule.MESSAGE_READ)
def failure_counts(patch: Patch) -> None:
    real = schedule.judged

    def judged(message: Message, answer: Any, *args: Any, **options: Any) -> Any:
        return real(message, Answer(status=answer.status and 204), *args, **options)

    patch.setattr(runner, "judged", judged)


@bug("each try has an id of its own", Rule.MESSAGE_READ)
def id_of_a_try(patch: Patch) -> None:
    real = body.headers

    def headers(message: Message) -> dict[str, str]:
        return {**real(message), "ce-id": f"{message.id}-{message.claim}"}

    patch.setattr(runner, "headers", headers)


@bug("a message is told of another job", Rule.MESSAGE_READ)
def other_job(patch: Patch) -> None:
    mixes, real = now_and_then(), body.headers

    def headers(message: Message) -> dict[str, str]:
        return {**real(message), **({"ce-subject": "job000"} if mixes() else {})}

    patch.setattr(runner, "headers", headers)


@bug("what a sender held when it died is told by nobody", Rule.MESSAGE_READ)
def held_for_ever(patch: Patch) -> None:
    patch.setattr(runner, "LEASES", 1_000_000)
