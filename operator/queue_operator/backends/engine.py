"""The contract on a shelf of jobs: each call finds, decides and changes, alone with the shelf."""

import random
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from queue_operator.backends import protocol
from queue_operator.backends.atomic import atomic, reading, undone_by
from queue_operator.backends.base import BaseBackend
from queue_operator.backends.chances import SYSTEM, Entropy, tokens
from queue_operator.backends.intake import Name, first_of, refusals
from queue_operator.backends.outbox import ShelfWebhooks, told_of
from queue_operator.backends.plane_base import SPAWN, PlaneBase, refused, stored
from queue_operator.backends.protocol import DELETE, Topic
from queue_operator.backends.searching import without_content
from queue_operator.backends.shelf import Shelf
from queue_operator.backends.shelf_following import ShelfFollowed
from queue_operator.backends.steering_base import SteeringBase
from queue_operator.backends.steering_shelf import drop_pause, place_of, put_pause, suspend
from queue_operator.backends.stored import Stored, lanes_of
from queue_operator.backends.tallying import forget_old, tell_tallies, usage_of, window_of
from queue_operator.backends.tokens import take_from
from queue_operator.domain import job as jobs_
from queue_operator.domain import record
from queue_operator.domain.batch import unplaced
from queue_operator.domain.dependencies import Wait
from queue_operator.domain.errors import InvalidTransition, JobNotFound, QueueError, StaleLease
from queue_operator.domain.idempotency import content_digest
from queue_operator.domain.job import Cancelled, Demand, Job, JobStats, Submitted, TypeDefaults
from queue_operator.domain.lease import Held, LeaseAnswer, Leased, LeaseStatus, Lost
from queue_operator.domain.log_cursor import LogCursor
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.overdue import CANCEL_TIMEOUT_S, WORKER_LOST, overdue, sweep_turn
from queue_operator.domain.overdue import Limits as Times
from queue_operator.domain.running import newest_lines
from queue_operator.domain.states import SLOT_HOLDING, TERMINAL, Event, JobState
from queue_operator.domain.transition import FENCED, Move, caused, decide, decide_update
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits

_T = TypeVar("_T")
_US = timedelta(microseconds=1)
Decided = tuple[Stored, Move]
_Given = tuple[Job, jobs_.Assignment]
# An administrator's change of a status may come with a message all the same.
_NO_FAILURE: Final = (JobState.CANCELLING, JobState.COMPLETED)


class Engine(BaseBackend, PlaneBase, SteeringBase):
    """Backend, Search, History, Failures, EventLog, CancelInbox, ProgressSink, Checkpoints,
    Spawner, JobLogs, Pauses, Suspensions, Places, Statistics and Usages but for where the jobs
    are. `clock` gives aware times, and every decision uses it.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
        cancel_timeout_s: float = CANCEL_TIMEOUT_S,
        entropy: Entropy = SYSTEM,
    ) -> None:
        super().__init__(limits, cancel_timeout_s)
        self._shelf = shelf
        self._clock = clock
        self._rng = rng
        self._entropy = entropy
        self._cancel_timeout = timedelta(seconds=cancel_timeout_s)
        self._now = clock()
        self.webhooks = ShelfWebhooks(self, limits, clock)
        self.followed = ShelfFollowed(self, clock)

    @abstractmethod
    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T:
        """Runs `work` while nobody else uses the shelf; what it raises leaves no trace. If it
        only `reads`, others may, as long as it does not see what they do.

        Raises Unavailable when the shelf cannot be reached.
        """

    async def _alone_or_undone(self, work: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
        """The same for what gives something to its caller: where that one is cancelled and
        `work` was done all the same, `undo` is done too. Here nobody waits once it is done.
        """
        return await self._alone(work)

    def _at_once(self, method: Callable[[], _T]) -> Callable[[], _T]:
        """The method at the time at which it is begun."""

        def work() -> _T:
            self._now = self._clock()
            return method()

        return work

    # Submission

    @atomic
    def _submit(self, jobs: Sequence[Job], *, atomic: bool) -> list[Submitted]:
        return self._take_in(jobs, atomic=atomic)

    def _take_in(self, jobs: Sequence[Job], *, atomic: bool) -> list[Submitted]:
        left, answers = dict(enumerate(jobs)), dict[int, Submitted]()
        refused = refusals(left, self._shelf.holds, self._shelf.holder_of, atomic=atomic)
        if atomic and (error := first_of(refused)) is not None:
            raise error
        while wrong := refused.errors or refused.clashes:
            for n, one_error in wrong.items():
                answers[n] = Submitted(job_id=left.pop(n).id, error=one_error)
            refused = refusals(left, self._shelf.holds, self._shelf.holder_of, atomic=atomic)
        new = {n: one for n, job in left.items() if (one := self._store(job)) is not None}
        first: dict[int, str] = {}
        for n, job in left.items():
            holder = self._shelf.holder_of((job.namespace, job.idempotency_key))
            first[n] = holder[0] if holder and n not in new else job.id
        if new:
            numbers = tuple(one.number for one in new.values())
            told = lanes_of([one.job for one in new.values()])
            self._tell("SUBMIT", None, JobState.INITIAL_PENDING, job_nos=numbers, **told)
            for one in new.values():
                self._tally("SUBMIT", one, {})
        # A parent that repeats another submission is the job that stands for it.
        stands_for = {(job.namespace, job.id): first[n] for n, job in left.items()}
        for one in new.values():
            self._link(one, stands_for)
        hopeless = [skip for one in new.values() if one.edges and (skip := self._go_on(one))]
        if any(not one.job.waiting_for_dependencies for one in new.values()):
            self._shelf.announce(Topic.READY)
        self._carry_out(hopeless)
        for n, job in left.items():
            stored = self._find(job.namespace, first[n]).job
            answers[n] = record.answered(stored, duplicate=n not in new)
        return [answers[n] for n in range(len(jobs))]

    def _store(self, job: Job) -> Stored | None:
        """None when another job holds its key."""
        key = job.namespace, job.idempotency_key
        if job.idempotency_key and self._shelf.holder_of(key) is not None:
            return None
        new = record.submitted(job, self._now)
        one = self._shelf.add(new)
        one.become(new, "SUBMIT", new.created_at or self._now)
        if job.idempotency_key:
            self._shelf.hold(key, (job.id, content_digest(job)))
        return one

    def _link(self, child: Stored, stands_for: Mapping[Name, str]) -> None:
        space = child.job.namespace
        for name in child.job.depends_on:
            child.depend_on(self._find(space, stands_for.get((space, name), name)), name)

    @atomic
    def _spawn(self, requests: Sequence[protocol.SpawnRequest]) -> list[Submitted]:
        return [self._spawn_one(request) for request in requests]

    def _spawn_one(self, request: protocol.SpawnRequest) -> Submitted:
        job = request.job
        parent = self._shelf.get((request.namespace, request.parent_id))
        if parent is None or not parent.speaks_for(request.token):
            return Submitted(job_id=job.id, error=StaleLease(request.parent_id))
        if parent.job.state is JobState.CANCELLING:
            error = InvalidTransition(request.parent_id, parent.job.state, SPAWN)
            return Submitted(job_id=job.id, error=error)
        child = self._shelf.get((job.namespace, job.id))
        if child is not None and child.job.spawned_by == request.parent_id:
            return Submitted(job_id=job.id, duplicate=True)
        if (deep := request.too_deep(parent.job.spawn_depth)) is not None:
            return Submitted(job_id=job.id, error=deep)
        job = replace(
            job,
            correlation_id=job.correlation_id or parent.job.correlation_id,
            spawn_depth=parent.job.spawn_depth + 1,
        )
        [answer] = self._take_in([job], atomic=False)
        return replace(answer, error=answer.error and unplaced(answer.error))

    # Assignment

    async def _dequeue(self, demand: Demand, lease_ttl_s: float | None) -> list[Job]:
        given = await self._give([demand], lease_ttl_s, {})
        return [replace(job, token=one.token) for job, one in given]

    async def _claim(
        self,
        demands: Sequence[Demand],
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults],
    ) -> list[jobs_.Assignment]:
        return [one for _, one in await self._give(demands, lease_ttl_s, defaults)]

    def _take_back(self, given: Sequence[_Given]) -> None:
        """Nobody was told of these; STOP for those that are being cancelled by now."""
        for _, one in given:
            name = one.job_id, Event.RELEASE, one.namespace, one.token
            self._settle_in_turn(Outcome(*name, worker_plane=True))

    @undone_by(_take_back)
    def _give(
        self, demands: Sequence[Demand], ttl_s: float | None, defaults: Mapping[str, TypeDefaults]
    ) -> list[_Given]:
        groups: dict[tuple[object, ...], list[Demand]] = defaultdict(list)
        for demand in demands:
            groups[demand.namespace, demand.tags, demand.types].append(demand)
        taken = [one for g in groups.values() for one in self._take(g, ttl_s, defaults)]
        return [(one.job, one.assignment()) for one in taken]

    @reading
    def _eligible_for(self, demands: Sequence[Demand]) -> list[bool]:
        return [bool(self._shelf.claimable(one, self._now, 1)) for one in demands]

    def _take(
        self, group: Sequence[Demand], ttl_s: float | None, defaults: Mapping[str, TypeDefaults]
    ) -> list[Stored]:
        """Equal demands get one job each in turn."""
        now, wanted = self._now, group[0]
        turns = range(max(demand.limit for demand in group))
        slots = [demand for turn in turns for demand in group if turn < demand.limit]
        eligible = self._shelf.claimable(wanted, now, len(slots))
        taken = list(zip(eligible, slots, strict=False))
        fresh = tokens(self._entropy, len(taken))
        for (one, slot), token in zip(taken, fresh, strict=True):
            before, default = one.job.state, defaults.get(one.job.type, TypeDefaults())
            job = record.claimed(one.job, slot, default, now)
            one.start(job, slot, token, ttl_s)
            wait_us = max((now - (job.eligible_at or now)) // _US, 0)
            worker = slot.worker_name or slot.assignee_id
            told = {"wait_us": (wait_us,), "workers": (worker,)}
            self._tell_of(Event.CLAIM, before, one, job.attempt, **told)
        return [one for one, _ in taken]

    def _tell_of(
        self, event: str, before: JobState, one: Stored, attempt: int, **told: object
    ) -> None:
        told |= {"job_nos": (one.number,), "attempts": (attempt,)}
        self._tell(event, before, None if event == DELETE else one.job.state, **told)
        if event != DELETE:
            self._tally(event, one, told)

    def _tally(self, event: str, one: Stored, told: Mapping[str, object]) -> None:
        tell_tallies(self._shelf, self._now, event, one.job.state, one.job, told)

    def _tell(
        self, event: str, before: JobState | None, after: JobState | None, **told: object
    ) -> None:
        pair = {"event": str(event), "before": before, "after": after}
        self._shelf.tell({"at": self._now, **pair, **told})

    # Outcomes

    @reading
    def _owners_of(self, named: Mapping[str, Name]) -> dict[str, str]:
        found = {token: self._shelf.get(name) for token, name in named.items()}
        owners = {token: one.owner_of(token) for token, one in found.items() if one is not None}
        return {token: owner for token, owner in owners.items() if owner}

    @atomic
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
        self._carry_out([(one, move)])
        return Settled(*told, state=move.after, freed_assignee_id=freed)

    @atomic
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
        move = decide_update(one.current(token), token, status, result, error_msg)
        if move is None:
            return {}
        self._carry_out([(one, move)])
        return {one.job.assignee_id: 1} if move.frees_slot else {}

    def _carry_out(self, decided: Sequence[Decided]) -> None:
        """Makes moves, and all that follows for the jobs that wait for others."""
        while decided:
            for one, move in decided:
                self._make(one, move)
            ended = [one for one, move in decided if move.ends or move.before in TERMINAL]
            waiting: dict[int, Stored] = {}
            for parent in ended:
                for child in self._shelf.children_of(parent):
                    # One of them may have been ended by the same call.
                    if child.job.state is JobState.INITIAL_PENDING and child.note_parent(parent):
                        waiting[child.number] = child
            decided = [skip for child in waiting.values() if (skip := self._go_on(child))]

    def _make(self, one: Stored, move: Move) -> None:
        now, attempt, assigned_at = self._now, one.job.attempt, one.job.assigned_at
        if move.after is JobState.CANCELLING:
            one.job = record.given(one.job, move, now)
            one.ask_to_stop(False, move.cancel_reason, now)
        else:
            one.move(move, record.moved(one.job, move, now), now)
        if move.ends and one.job.callback_url:
            self._shelf.outbox.add(told_of(one.job, self._entropy, now))
        if move.waits or move.after is JobState.CANCELLING:
            self._shelf.announce(Topic.READY if move.waits else Topic.CANCEL)
        run_us = max((now - (assigned_at or now)) // _US, 0)
        told: dict[str, object] = {"run_us": (run_us,)} if move.event in FENCED else {}
        if move.error is not None and move.after not in _NO_FAILURE:
            told["failed"] = ({"category": move.error.category, "code": move.error.code},)
        self._tell_of(move.event, move.before, one, attempt, **told)

    def _go_on(self, child: Stored) -> Decided | None:
        """What follows for a job from how its parents stand now: it waits, may run, or is to
        be skipped.
        """
        wait, waited = child.wait(), child.job.waiting_for_dependencies
        child.job = replace(child.job, waiting_for_dependencies=wait is not Wait.RUN)
        if waited and wait is Wait.RUN:
            eligible_at = max(child.job.eligible_at or self._now, self._now)
            child.job = replace(child.job, eligible_at=eligible_at)
            self._shelf.announce(Topic.READY)
        if wait is not Wait.SKIP:
            return None
        return self._decide(child, Outcome(child.job.id, Event.SKIP, reason=child.obstacle()))

    def _decide(self, one: Stored, outcome: Outcome, **changes: Any) -> Decided:
        """What the queue itself wants. Raises InvalidTransition."""
        move = decide(one.current(None), outcome, self._rng)
        if move is None:
            raise InvalidTransition(one.job.id, one.job.state, outcome.event)
        return one, replace(move, **changes)

    # Cancellation

    @atomic
    def _cancel(
        self, namespace: str, tags: frozenset[str], job_ids: list[str], force: bool, reason: str
    ) -> Cancelled:
        chosen, done, requests = self._shelf.chosen(namespace, tags, job_ids), list[str](), []
        known = {one.job.id for one in chosen}
        unknown = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in known]
        unknown += [one for one in self._shelf.ended_ids(namespace, tags) if one not in known]
        ending: list[Decided] = []
        for one in chosen:
            before = one.job.state
            if before in TERMINAL:
                unknown.append(one.job.id)
                continue
            done.append(one.job.id)
            if before not in SLOT_HOLDING:
                cancel = Outcome(one.job.id, Event.CANCEL, reason=reason)
                ending.append(self._decide(one, cancel))
                continue
            if one.ask_to_stop(force, reason, self._now):
                self._tell_of(Event.CANCEL, before, one, one.job.attempt)
            requests.append(one.request())
        if requests:
            self._shelf.announce(Topic.CANCEL)
        self._carry_out(ending)
        return Cancelled(tuple(done), tuple(unknown), tuple(requests))

    @reading
    def _pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled:
        told = [one for one in self._shelf.leased() if one.job.state is JobState.CANCELLING]
        told.sort(key=lambda one: (one.cancel_at or self._now, one.number))
        mine = [one.request() for one in told if one.job.assignee_id in assignee_ids]
        return Cancelled(requests=tuple(mine))

    @atomic
    def _confirm_cancels(self, received: Sequence[Held]) -> None:
        for held in received:
            one = self._shelf.get((held.namespace, held.job_id))
            if one is not None and one.token == held.token:
                one.cancel_received = True

    # Workers and leases

    @atomic
    def _lose(self, *, assignee_id: str | None, namespace: str | None) -> protocol.Freed:
        lost = [one for one in self._shelf.leased() if assignee_id in (None, one.job.assignee_id)]
        lost = [one for one in lost if namespace in (None, one.job.namespace)]
        lose = [self._decide(one, Outcome(one.job.id, Event.LOSE)) for one in lost]
        self._carry_out([(one, caused(move)) for one, move in lose])
        return Counter(one.job.assignee_id for one in lost)

    @reading
    def _leased(self, assignee_ids: Collection[str]) -> list[Leased]:
        return [one.leased() for one in self._shelf.leased() if one.job.assignee_id in assignee_ids]

    @atomic
    def _extend(self, held: Sequence[Held], lease_ttl_s: float) -> list[LeaseAnswer]:
        return [self._renew(one, timedelta(seconds=lease_ttl_s)) for one in held]

    def _renew(self, held: Held, ttl: timedelta) -> LeaseAnswer:
        told = held.job_id, held.token, held.namespace
        one = self._shelf.get((held.namespace, held.job_id))
        if one is None:
            return LeaseAnswer(*told, LeaseStatus.ENDED)
        if one.token == held.token and one.job.state in SLOT_HOLDING:
            one.expires_at = one.expires_at and self._now + ttl
            asked = one.job.state is JobState.CANCELLING
            return LeaseAnswer(*told, LeaseStatus.CURRENT, asked, asked and one.cancel_forced)
        if one.token != held.token and one.job.state not in TERMINAL:
            return LeaseAnswer(*told, LeaseStatus.TAKEN_OVER)
        lost = one.job.state is JobState.UNKNOWN_RETRY
        return LeaseAnswer(*told, LeaseStatus.LOST if lost else LeaseStatus.ENDED)

    @atomic
    def _expire(self, lease_ttl_s: float, limit: int) -> list[Lost]:
        now, ttl, shelf = self._now, timedelta(seconds=lease_ttl_s), self._shelf
        turn = sweep_turn(shelf.swept_at or now, shelf.resumed_at, now, ttl)
        shelf.swept_at, shelf.resumed_at = now, turn.resumed_at
        lost: list[Decided] = []
        for one in self._shelf.leased():
            unconfirmed = one.cancel_forced or not one.cancel_received
            times = Times(
                expires_at=one.expires_at if turn.loses(one.expires_at) else None,
                deadline=one.deadline,
                cancel_at=one.cancel_at if unconfirmed else None,
            )
            outcome = overdue(one.job, times, now, ttl, self._cancel_timeout)
            if outcome is not None and len(lost) < limit:
                # Lost on its last attempt, it waits one TTL for a late outcome.
                last = outcome.event is Event.LOSE and record.is_used_up(one.job)
                changes = {"delay_s": ttl.total_seconds()} if last else {}
                lost.append(self._decide(one, outcome, **changes))
        self._carry_out(lost)
        given_up = [
            self._decide(one, Outcome(one.job.id, Event.EXHAUST, error=WORKER_LOST))
            for one in shelf.used_up(now)
        ]
        self._carry_out(given_up)
        return [Lost(one.job.id, one.job.namespace, one.job.assignee_id) for one, _ in lost]

    @atomic
    def _record_progress(self, reports: Sequence[protocol.ProgressReport]) -> None:
        for report in sorted(reports, key=lambda report: report.progress.updated_at):
            one = self._shelf.get((report.namespace, report.job_id))
            if one is not None and one.token == report.token:
                one.reach(report.progress)

    @atomic
    def _store_checkpoints(
        self, reports: Sequence[protocol.CheckpointReport]
    ) -> list[protocol.CheckpointAnswer]:
        return [self._keep(report) for report in reports]

    def _keep(self, report: protocol.CheckpointReport) -> protocol.CheckpointAnswer:
        one = self._shelf.get((report.namespace, report.job_id))
        if one is None or not one.keep(report.token, report.number, report.data):
            return refused(report, StaleLease(report.job_id))
        return stored(report, one.job.state is JobState.CANCELLING, one.cancel_forced)

    @atomic
    def _append_logs(self, reports: Sequence[protocol.LogReport]) -> None:
        for report in reports:
            one = self._shelf.get((report.namespace, report.job_id))
            version = None if one is None else one.version_of(report.token)
            if one is not None and version is not None:
                self._shelf.add_lines(one, version, report.lines)

    @reading
    def _job_log(
        self, namespace: str, job_id: str, after: LogCursor
    ) -> list[protocol.AttemptLog] | None:
        one = self._shelf.get((namespace, job_id))
        if one is None:
            return None
        logs = self._shelf.lines_of(one, after.spans())
        return [
            newest_lines(v, one.attempts[v].number, logs[v], read=after.read_of(v))
            for v in sorted(logs)
        ]

    # Queries

    def _find(self, namespace: str, job_id: str) -> Stored:
        one = self._shelf.get((namespace, job_id))
        if one is None:
            raise JobNotFound(job_id, namespace)
        return one

    @reading
    def _get(self, namespace: str, job_ids: Sequence[str]) -> dict[str, Job]:
        return {one.job.id: one.job for one in self._shelf.chosen(namespace, frozenset(), job_ids)}

    @reading
    def _look_up(self, namespace: str, job_ids: Sequence[str]) -> dict[str, Job]:
        chosen = self._shelf.chosen(namespace, frozenset(), job_ids)
        return {one.job.id: without_content(one.job) for one in chosen}

    @reading
    def _stats(self, namespace: str, tags: frozenset[str]) -> JobStats:
        return JobStats.from_counts(tags, *self._shelf.counts(namespace, tags))

    @reading
    def _window(self, window: protocol.StatsWindow) -> protocol.WindowStats:
        return window_of(self._shelf, window, self._now)

    @reading
    def _usage_of(self, namespaces: Collection[str]) -> dict[str, protocol.Usage]:
        counts = {name: self._shelf.counts(name, frozenset())[0] for name in namespaces}
        return {name: usage_of(by_state) for name, by_state in counts.items()}

    @atomic
    def _take_tokens(self, bucket: str, amount: float, rate_per_s: float, burst: float) -> float:
        return take_from(self._shelf, bucket, amount, self._now, rate_per_s=rate_per_s, burst=burst)

    @reading
    def _taken_keys(self, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        return {key for key in keys if self._shelf.holder_of(key)}

    @atomic
    def _roll_up(self, limit: int) -> int:
        forget_old(self._shelf, self._now)
        return 0

    @reading
    def _search(self, search: protocol.JobSearch) -> protocol.JobPage:
        found = self._shelf.search(search, self._now)
        return replace(found, jobs=tuple(map(without_content, found.jobs)))

    @reading
    def _search_failures(self, search: protocol.FailureSearch) -> protocol.FailurePage:
        found = self._shelf.search_failures(search)
        return replace(found, jobs=tuple(map(without_content, found.jobs)))

    @reading
    def _place(self, namespace: str, job_id: str) -> protocol.Place | None:
        one = self._shelf.get((namespace, job_id))
        return None if one is None else place_of(self._shelf, one, self._now)

    @reading
    def _history(self, namespace: str, job_id: str) -> protocol.JobHistory | None:
        one = self._shelf.get((namespace, job_id))
        if one is None:
            return None
        attempts = tuple(one.attempts.values())
        return protocol.JobHistory(attempts=attempts, transitions=tuple(one.transitions))

    @reading
    def _read_events(self, after: int, limit: int) -> list[protocol.EventBatch]:
        return list(self._shelf.events(after, limit))

    # Pauses

    @atomic
    def _pause(self, pause: protocol.Pause) -> protocol.Pause:
        return put_pause(self._shelf, pause, self._now)

    @atomic
    def _resume(self, namespace: str, type: str) -> bool:
        return drop_pause(self._shelf, namespace, type)

    @reading
    def _pauses(self, namespace: str | None) -> list[protocol.Pause]:
        return self._shelf.pauses(namespace)

    @atomic
    def _set_suspended(self, wanted: Mapping[Name, bool]) -> set[Name]:
        return suspend(self._shelf, wanted, self._now)

    # Maintenance

    @atomic
    def _cleanup(self, ttl_s: float, namespace: str | None) -> int:
        oldest = self._now - timedelta(seconds=ttl_s)
        return sum(map(self._remove, self._shelf.completed_before(oldest, namespace)))

    @atomic
    def _delete(self, namespace: str, tags: frozenset[str], job_ids: list[str]) -> int:
        chosen = self._shelf.chosen(namespace, tags, job_ids)
        for one in chosen:
            if one.job.state not in TERMINAL:
                raise InvalidTransition(one.job.id, one.job.state, DELETE)
        return self._remove(chosen) + sum(map(self._remove, self._shelf.ended(namespace, tags)))

    def _remove(self, chosen: Collection[Stored]) -> int:
        for one in chosen:
            self._tell_of(DELETE, one.job.state, one, one.job.attempt)
        self._shelf.remove(chosen)
        return len(chosen)

    @atomic
    def ping(self) -> None:
        """Being alone with the shelf is proof enough."""
