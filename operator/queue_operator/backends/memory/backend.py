"""The memory backend: one dictionary of jobs, and nothing that waits inside a change of it."""

import asyncio
import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from queue_operator.backends import protocol
from queue_operator.backends.base import BaseBackend
from queue_operator.backends.intake import Holder, Name, first_of, refusals
from queue_operator.backends.memory.jobs import Edge, Log, Stored
from queue_operator.backends.searching import page, page_of_failures
from queue_operator.domain import job as jobs_
from queue_operator.domain import record
from queue_operator.domain.dependencies import Wait
from queue_operator.domain.errors import (
    InvalidTransition,
    JobNotFound,
    QueueError,
    StaleLease,
    Unavailable,
)
from queue_operator.domain.idempotency import content_digest
from queue_operator.domain.job import Cancelled, Demand, Job, JobStats, Submitted, TypeDefaults
from queue_operator.domain.lease import Held, LeaseAnswer, LeaseStatus, Lost
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.overdue import WORKER_LOST, overdue
from queue_operator.domain.overdue import Limits as Times
from queue_operator.domain.states import SLOT_HOLDING, TERMINAL, Event, JobState
from queue_operator.domain.tags import matches
from queue_operator.domain.transition import FENCED, Move, decide, decide_update
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits

_P = ParamSpec("_P")
_T = TypeVar("_T")
_US = timedelta(microseconds=1)


@dataclass
class Shelf:
    """What backends on one store share. A store that is not `reachable` is Unavailable."""

    jobs: dict[Name, Stored] = field(default_factory=dict)
    keys: dict[Name, Holder] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    numbers: int = 0
    swept_at: datetime | None = None
    resumed_at: datetime | None = None
    reachable: bool = True


def _atomic(
    method: Callable[Concatenate["MemoryBackend", _P], _T],
) -> Callable[Concatenate["MemoryBackend", _P], Coroutine[Any, Any, _T]]:
    """A call that others may come before, but that nobody comes into."""

    async def call(self: "MemoryBackend", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        await asyncio.sleep(0)
        if not self.shelf.reachable:
            raise Unavailable("the memory store was put out of reach")
        return method(self, *args, **kwargs)

    return call


class MemoryBackend(BaseBackend):
    """Backend, Search, History, Failures, EventLog, CancelInbox and ProgressSink. Nothing
    outlives the process. `clock` gives aware times, and every decision uses it.
    """

    def __init__(
        self,
        shelf: Shelf | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
        cancel_timeout_s: float = 30.0,
    ) -> None:
        super().__init__(limits)
        self.shelf = shelf or Shelf()
        self._clock = clock
        self._rng = rng
        self._cancel_timeout = timedelta(seconds=cancel_timeout_s)
        self.shelf.swept_at = self.shelf.swept_at or clock()

    # Submission

    @_atomic
    def _submit(self, jobs: Sequence[Job], *, atomic: bool) -> list[Submitted]:
        left, answers = dict(enumerate(jobs)), dict[int, Submitted]()
        while errors := refusals(left, self.shelf.jobs.__contains__, self.shelf.keys.get):
            if atomic:
                raise first_of(errors)
            for n, error in errors.items():
                answers[n] = Submitted(job_id=left.pop(n).id, error=error)
        new = {n: one for n, job in left.items() if (one := self._store(job)) is not None}
        for n, job in left.items():
            holder = self.shelf.keys.get((job.namespace, job.idempotency_key))
            first = holder[0] if holder and n not in new else job.id
            answers[n] = Submitted(job_id=first, duplicate=n not in new)
        if new:
            self.shelf.log.submitted(new.values(), self._clock())
        # A parent that repeats another submission is the job that stands for it.
        stands_for = {(job.namespace, job.id): answers[n].job_id for n, job in left.items()}
        for one in new.values():
            self._link(one, stands_for)
        return [answers[n] for n in range(len(jobs))]

    def _store(self, job: Job) -> Stored | None:
        """None when another job holds its key."""
        key = job.namespace, job.idempotency_key
        if job.idempotency_key and key in self.shelf.keys:
            return None
        self.shelf.numbers += 1
        now = self._clock()
        one = Stored(number=self.shelf.numbers, job=job)
        one.become(record.submitted(job, now), "SUBMIT", now)
        self.shelf.jobs[job.namespace, job.id] = one
        if job.idempotency_key:
            self.shelf.keys[key] = job.id, content_digest(job)
        return one

    def _link(self, child: Stored, stands_for: Mapping[Name, str]) -> None:
        space = child.job.namespace
        for name in child.job.depends_on:
            parent = self.shelf.jobs[space, stands_for.get((space, name), name)]
            child.edges.append(Edge(parent.number, name))
            child.note_parent(parent)
        if child.edges:
            self._go_on(child)

    # Assignment

    @_atomic
    def _dequeue(self, demand: Demand, lease_ttl_s: float | None) -> list[Job]:
        return [one.job for one in self._take([demand], lease_ttl_s, {})]

    @_atomic
    def _claim(
        self,
        demands: Sequence[Demand],
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults],
    ) -> list[jobs_.Assignment]:
        groups: dict[tuple[object, ...], list[Demand]] = defaultdict(list)
        for demand in demands:
            groups[demand.namespace, demand.tags, demand.types].append(demand)
        taken = [one for g in groups.values() for one in self._take(g, lease_ttl_s, defaults)]
        return [record.assignment(one.job, one.token or "", one.parent_result) for one in taken]

    def _take(
        self, group: Sequence[Demand], ttl_s: float | None, defaults: Mapping[str, TypeDefaults]
    ) -> list[Stored]:
        """Equal demands get one job each in turn."""
        now, wanted = self._clock(), group[0]
        turns = range(max(demand.limit for demand in group))
        slots = [demand for turn in turns for demand in group if turn < demand.limit]
        eligible = [
            one
            for one in self._in(wanted.namespace)
            if record.is_claimable(one.job, now)
            and (not wanted.types or one.job.type in wanted.types)
            and matches(wanted.tags, one.job.tags)
        ]
        eligible.sort(key=lambda one: (record.place(one.job), one.number))
        taken = list(zip(eligible, slots, strict=False))
        for one, slot in taken:
            before, default = one.job.state, defaults.get(one.job.type, TypeDefaults())
            job = record.claimed(one.job, slot, default, now)
            one.start(job, slot, str(uuid.uuid4()), ttl_s)
            wait_us = max((now - (job.eligible_at or now)) // _US, 0)
            worker = slot.worker_name or slot.assignee_id
            self._tell(Event.CLAIM, before, one, wait_us=(wait_us,), workers=(worker,))
        return [one for one, _ in taken]

    def _tell(self, event: str, before: JobState, one: Stored, **told: object) -> None:
        after = None if event == "DELETE" else one.job.state
        told |= {"job_nos": (one.number,), "attempts": (one.job.attempt,)}
        self.shelf.log.add(event, before, after, self._clock(), **told)

    # Outcomes

    @_atomic
    def _settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        return [self._settle_in_turn(outcome) for outcome in outcomes]

    def _settle_in_turn(self, outcome: Outcome) -> Settled:
        told = outcome.job_id, outcome.namespace
        try:
            one = self._find(outcome.namespace, outcome.job_id)
            move = decide(one.current(outcome.token), outcome, self._rng)
        except QueueError as error:
            return Settled(*told, error=error)
        if move is None:
            return Settled(*told, state=one.job.state, repeated=True)
        freed = one.job.assignee_id if move.frees_slot else None
        self._carry_out(one, move)
        return Settled(*told, state=move.after, freed_assignee_id=freed)

    @_atomic
    def _update_status(
        self,
        namespace: str,
        job_id: str,
        token: str | None,
        status: JobState,
        result: bytes | None,
        error_msg: str,
    ) -> protocol.Freed:
        one = self._find(namespace, job_id)
        if token not in (None, one.token):
            raise StaleLease(job_id)
        move = decide_update(one.current(None), status, result, error_msg)
        freed = {one.job.assignee_id: 1} if move.frees_slot else {}
        self._carry_out(one, move)
        return freed

    def _carry_out(self, one: Stored, move: Move) -> None:
        now, assigned_at = self._clock(), one.job.assigned_at
        if move.after is JobState.CANCELLING:
            one.job = replace(one.job, error=move.error or one.job.error)
            one.job = replace(one.job, result=move.result or one.job.result)
            one.ask_to_stop(False, "", now)
        else:
            one.move(move, record.moved(one.job, move, now), now)
        run_us = max((now - (assigned_at or now)) // _US, 0)
        told: dict[str, object] = {"run_us": (run_us,)} if move.event in FENCED else {}
        if move.error is not None:
            told["failed"] = ({"category": move.error.category, "code": move.error.code},)
        self._tell(move.event, move.before, one, **told)
        if move.ends or move.before in TERMINAL:
            for child in list(self._in(one.job.namespace)):
                waits = child.job.state is JobState.INITIAL_PENDING
                if waits and child.note_parent(one):
                    self._go_on(child)

    def _go_on(self, child: Stored) -> None:
        """What follows for a job from how its parents stand now."""
        wait, waited = child.wait(), child.job.waiting_for_dependencies
        child.job = replace(child.job, waiting_for_dependencies=wait is not Wait.RUN)
        if waited and wait is Wait.RUN:
            eligible_at = max(child.job.eligible_at or self._clock(), self._clock())
            child.job = replace(child.job, eligible_at=eligible_at)
        if wait is Wait.SKIP:
            self._force(child, Outcome(child.job.id, Event.SKIP, reason=child.obstacle()))

    def _force(self, one: Stored, outcome: Outcome, **changes: Any) -> Move:
        """Carries out what the queue itself wants. Raises InvalidTransition."""
        move = decide(one.current(None), outcome, self._rng)
        if move is None:
            raise InvalidTransition(one.job.id, one.job.state, outcome.event)
        self._carry_out(one, replace(move, **changes))
        return move

    # Cancellation

    @_atomic
    def _cancel(
        self, namespace: str, tags: frozenset[str], job_ids: list[str], force: bool, reason: str
    ) -> Cancelled:
        chosen, done, requests = self._chosen(namespace, tags, job_ids), list[str](), []
        unknown = [i for i in dict.fromkeys(job_ids) if (namespace, i) not in self.shelf.jobs]
        # Children before their parents, whose end would skip them.
        for one in sorted(chosen, key=lambda one: -one.number):
            before = one.job.state
            if before in SLOT_HOLDING:
                if one.ask_to_stop(force, reason, self._clock()):
                    self._tell(Event.CANCEL, before, one)
                requests.append(one.request())
            elif before in TERMINAL:
                unknown.append(one.job.id)
                continue
            else:
                self._force(one, Outcome(one.job.id, Event.CANCEL, reason=reason))
            done.append(one.job.id)
        return Cancelled(tuple(done), tuple(unknown), tuple(requests))

    def _chosen(self, space: str, tags: frozenset[str], ids: Collection[str]) -> list[Stored]:
        by_tags = {one.job.id for one in self._in(space) if tags and matches(tags, one.job.tags)}
        return [one for one in self._in(space) if one.job.id in by_tags.union(ids)]

    async def pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled:
        told = (one for one in self._leased() if one.job.state is JobState.CANCELLING)
        mine = [one.request() for one in told if one.job.assignee_id in assignee_ids]
        return Cancelled(requests=tuple(mine))

    async def confirm_cancels(self, received: Sequence[Held]) -> None:
        for held in received:
            one = self.shelf.jobs.get((held.namespace, held.job_id))
            if one is not None and one.token == held.token:
                one.cancel_received = True

    # Workers and leases

    @_atomic
    def _lose(self, *, assignee_id: str | None, namespace: str | None) -> protocol.Freed:
        lost = [one for one in self._leased() if assignee_id in (None, one.job.assignee_id)]
        lost = [one for one in lost if namespace in (None, one.job.namespace)]
        for one in lost:
            self._force(one, Outcome(one.job.id, Event.LOSE), returns_attempt=True)
        return Counter(one.job.assignee_id for one in lost)

    def _leased(self) -> list[Stored]:
        return [one for one in self.shelf.jobs.values() if one.job.state in SLOT_HOLDING]

    @_atomic
    def _extend(self, held: Sequence[Held], lease_ttl_s: float) -> list[LeaseAnswer]:
        return [self._renew(one, timedelta(seconds=lease_ttl_s)) for one in held]

    def _renew(self, held: Held, ttl: timedelta) -> LeaseAnswer:
        told = held.job_id, held.token, held.namespace
        one = self.shelf.jobs.get((held.namespace, held.job_id))
        if one is None:
            return LeaseAnswer(*told, LeaseStatus.ENDED)
        if one.token == held.token and one.job.state in SLOT_HOLDING:
            one.expires_at = one.expires_at and self._clock() + ttl
            asked = one.job.state is JobState.CANCELLING
            return LeaseAnswer(*told, LeaseStatus.CURRENT, asked, asked and one.cancel_forced)
        if one.token != held.token and one.job.state not in TERMINAL:
            return LeaseAnswer(*told, LeaseStatus.TAKEN_OVER)
        lost = one.job.state is JobState.UNKNOWN_RETRY
        return LeaseAnswer(*told, LeaseStatus.LOST if lost else LeaseStatus.ENDED)

    @_atomic
    def _expire(self, lease_ttl_s: float, limit: int) -> list[Lost]:
        now, ttl, shelf = self._clock(), timedelta(seconds=lease_ttl_s), self.shelf
        # After an outage the workers get the time to renew first.
        if now - (shelf.swept_at or now) > ttl:
            shelf.resumed_at = now
        shelf.swept_at = now
        may_expire = shelf.resumed_at is None or now - shelf.resumed_at >= ttl
        lost: list[Lost] = []
        for one in self._leased():
            unconfirmed = one.cancel_forced or not one.cancel_received
            times = Times(
                expires_at=one.expires_at if may_expire else None,
                deadline=one.deadline,
                cancel_at=one.cancel_at if unconfirmed else None,
            )
            outcome = overdue(one.job, times, now, ttl, self._cancel_timeout)
            if outcome is not None and len(lost) < limit:
                # Lost on its last attempt, it waits one TTL for a late outcome.
                last = outcome.event is Event.LOSE and record.is_used_up(one.job)
                changes = {"delay_s": ttl.total_seconds()} if last else {}
                self._force(one, outcome, **changes)
                lost.append(Lost(one.job.id, one.job.namespace, one.job.assignee_id))
        for one in list(shelf.jobs.values()):
            waits = one.job.state is JobState.UNKNOWN_RETRY and record.is_used_up(one.job)
            if waits and (one.job.eligible_at or now) <= now:
                self._force(one, Outcome(one.job.id, Event.EXHAUST, error=WORKER_LOST))
        return lost

    async def record_progress(self, reports: Sequence[protocol.ProgressReport]) -> None:
        for report in reports:
            one = self.shelf.jobs.get((report.namespace, report.job_id))
            if one is not None and one.token == report.token and one.job.state in SLOT_HOLDING:
                one.job = replace(one.job, progress=report.progress)

    # Queries

    def _in(self, namespace: str) -> Iterable[Stored]:
        return (one for one in self.shelf.jobs.values() if one.job.namespace == namespace)

    def _find(self, namespace: str, job_id: str) -> Stored:
        if (namespace, job_id) not in self.shelf.jobs:
            raise JobNotFound(job_id, namespace)
        return self.shelf.jobs[namespace, job_id]

    @_atomic
    def _get(self, namespace: str, job_ids: Sequence[str]) -> dict[str, Job]:
        return {one.job.id: one.job for one in self._chosen(namespace, frozenset(), job_ids)}

    @_atomic
    def _stats(self, namespace: str, tags: frozenset[str]) -> JobStats:
        jobs = [one.job for one in self._in(namespace) if matches(tags, one.job.tags)]
        counts = Counter(job.state for job in jobs)
        return JobStats.from_counts(tags, counts, sum(job.retry_count for job in jobs))

    @_atomic
    def _search(self, search: protocol.JobSearch) -> protocol.JobPage:
        found = ((one.number, one.job) for one in self._in(search.namespace))
        return page(found, search, self._clock())

    @_atomic
    def _search_failures(self, search: protocol.FailureSearch) -> protocol.FailurePage:
        return page_of_failures(((o.number, o.job) for o in self._in(search.namespace)), search)

    @_atomic
    def _history(self, namespace: str, job_id: str) -> protocol.JobHistory | None:
        one = self.shelf.jobs.get((namespace, job_id))
        if one is None:
            return None
        attempts = tuple(one.attempts.values())
        return protocol.JobHistory(attempts=attempts, transitions=tuple(one.transitions))

    async def read_events(self, *, after: int = 0, limit: int = 1000) -> list[protocol.EventBatch]:
        return self.shelf.log.rows[after : after + limit]

    # Maintenance

    @_atomic
    def _cleanup(self, ttl_s: float, namespace: str | None) -> int:
        oldest = self._clock() - timedelta(seconds=ttl_s)
        done = [o for o in self.shelf.jobs.values() if o.job.state is JobState.COMPLETED]
        old = [o for o in done if (o.job.finalized_at or oldest) < oldest]
        return self._remove([o for o in old if namespace in (None, o.job.namespace)])

    @_atomic
    def _delete(self, namespace: str, tags: frozenset[str], job_ids: list[str]) -> int:
        chosen = self._chosen(namespace, tags, job_ids)
        for one in chosen:
            if one.job.state not in TERMINAL:
                raise InvalidTransition(one.job.id, one.job.state, "DELETE")
        return self._remove(chosen)

    def _remove(self, chosen: Collection[Stored]) -> int:
        for one in chosen:
            del self.shelf.jobs[one.job.namespace, one.job.id]
            self.shelf.keys.pop((one.job.namespace, one.job.idempotency_key), None)
            self._tell("DELETE", one.job.state, one)
        return len(chosen)

    @_atomic
    def ping(self) -> None:
        """Nothing needs to be asked."""

    async def close(self) -> None:
        """There is nothing to give back."""
