"""What is kept of each job beside its record, by stores that keep a job whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from queue_operator.backends.protocol import Attempt, TransitionRecord
from queue_operator.domain import record
from queue_operator.domain.dependencies import DependencyMode, Wait, wait_for
from queue_operator.domain.job import Assignment, CancelRequest, Demand, Job, Progress
from queue_operator.domain.lease import Leased
from queue_operator.domain.states import (
    CHECKPOINTING,
    RETURNS_ATTEMPT,
    SLOT_HOLDING,
    TERMINAL,
    Event,
    JobState,
)
from queue_operator.domain.storable import without_unstorable
from queue_operator.domain.transition import FENCED, Current, Move


@dataclass(slots=True)
class Edge:
    """A parent as the child listed it; `outcome` is None until it has ended."""

    number: int
    name: str
    outcome: JobState | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The newest checkpoint: of which lease version, and which number of its run."""

    version: int
    number: int
    data: bytes


@dataclass(slots=True, kw_only=True)
class Stored:
    """Times that are None never come. `unfenced` are the attempts, by version, of whose end
    somebody told without their token.
    """

    number: int
    job: Job
    token: str | None = None
    expires_at: datetime | None = None
    deadline: datetime | None = None
    cancel_at: datetime | None = None
    cancel_forced: bool = False
    cancel_received: bool = False
    attempts: dict[int, Attempt] = field(default_factory=dict)
    unfenced: set[int] = field(default_factory=set)
    transitions: list[TransitionRecord] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    parent_result: tuple[bytes | None, str] | None = None
    checkpoint: Kept | None = None

    def current(self, token: str | None) -> Current:
        """What decides about an outcome that came with `token`."""
        mine = (a for a in self.attempts.values() if a.token == token and a.event)
        ended = next((one for one in mine if one.version not in self.unfenced), None)
        return Current(
            job_id=self.job.id,
            state=self.job.state,
            token=self.token,
            attempt=self.job.attempt,
            max_attempts=self.job.max_attempts,
            failure_count=self.job.failure_count,
            backoff=self.job.backoff,
            recorded=Event(ended.event) if ended and ended.event else None,
            recorded_state=ended.state if ended else None,
            skipped=self.job.reason == Event.SKIP,
            lost_before=self._lost_before(),
        )

    def _lost_before(self) -> bool:
        """Attempts that did not count are passed over: the one after them has their number."""
        versions = range(self.job.lease_version - 1, 0, -1)
        earlier = (self.attempts[version] for version in versions if version in self.attempts)
        before = next((one for one in earlier if one.number < self.job.attempt), None)
        return before is not None and before.event == Event.LOSE

    def become(self, job: Job, event: str, now: datetime, reason: str = "") -> None:
        """Takes on a new record, and notes the change of state."""
        before = self.job.state if self.transitions else None
        change = TransitionRecord(
            event=event, before=before, after=job.state, at=now, reason=reason
        )
        self.transitions.append(change)
        self.job = job

    def depend_on(self, parent: "Stored", name: str) -> None:
        """Waits for a job, which it listed under a name."""
        self.edges.append(Edge(parent.number, name))
        self.note_parent(parent)

    def start(self, job: Job, demand: Demand, token: str, ttl_s: float | None) -> None:
        """Runs under a new token."""
        now = job.assigned_at or datetime.min
        self.token = token
        self.expires_at = None if ttl_s is None else now + timedelta(seconds=ttl_s)
        limit_s = job.timeout_s
        self.deadline = None if limit_s is None else now + timedelta(seconds=limit_s)
        self.become(job, Event.CLAIM, now)
        self.attempts[job.lease_version] = Attempt(
            version=job.lease_version,
            number=job.attempt,
            token=token,
            assignee_id=demand.assignee_id,
            worker_name=demand.worker_name,
            host=demand.host,
            assigned_at=now,
            eligible_at=job.eligible_at,
        )

    def assignment(self) -> Assignment:
        """What its worker gets, once it is claimed."""
        kept = None if self.checkpoint is None else self.checkpoint.data
        return record.assignment(self.job, self.token or "", self.parent_result, kept)

    def move(self, move: Move, job: Job, now: datetime) -> None:
        """Becomes what `move` made of the record."""
        attempt = self.attempts.get(self.job.lease_version)
        if attempt is not None and move.event in FENCED and self.token is not None:
            ended = replace(attempt, event=move.event.value, state=move.after, error=move.error)
            self.attempts[attempt.version] = replace(ended, ended_at=now)
            (self.unfenced.discard if move.fenced else self.unfenced.add)(attempt.version)
        self.become(job, move.event, now, record.note_of(move))
        if move.ends:
            self.checkpoint = None
        if move.event in RETURNS_ATTEMPT or move.event is Event.RETRY_NOW:
            self.token = None
        self.expires_at = self.deadline = None

    def ask_to_stop(self, force: bool, reason: str, now: datetime) -> bool:
        """RUNNING to CANCELLING, or the same again with more force; True if that is news."""
        first = self.job.state is JobState.RUNNING
        if not first and (self.cancel_forced or not force):
            return False
        self.cancel_at, self.cancel_forced = now, force
        self.cancel_received = self.cancel_received and not first
        told = reason or self.job.cancel_reason
        job = replace(self.job, cancel_reason=told, updated_at=now)
        if first:
            job = replace(job, state=JobState.CANCELLING, transition=job.transition + 1)
            self.become(job, Event.CANCEL, now, told)
        self.job = job
        return first

    def reach(self, progress: Progress) -> None:
        """Takes on the progress of the running attempt, unless a newer one is known."""
        known = self.job.progress
        if self.job.state in SLOT_HOLDING and not (
            known and known.updated_at > progress.updated_at
        ):
            message = without_unstorable(progress.message)
            self.job = replace(self.job, progress=replace(progress, message=message))

    def version_of(self, token: str) -> int | None:
        """The lease version that has, or had, the token."""
        return next((v for v, one in self.attempts.items() if one.token == token), None)

    def owner_of(self, token: str) -> str | None:
        version = self.version_of(token)
        return None if version is None else self.attempts[version].assignee_id

    def speaks_for(self, token: str) -> bool:
        """Whether whoever has the token may say something about the job beside its end."""
        return self.token == token and self.job.state in CHECKPOINTING

    def keep(self, token: str, number: int, data: bytes) -> bool:
        """Keeps a checkpoint, unless a newer one is known; False where the token does not count."""
        if not self.speaks_for(token):
            return False
        kept = Kept(self.job.lease_version, number, data)
        known = self.checkpoint
        if known is None or (known.version, known.number) <= (kept.version, kept.number):
            self.checkpoint = kept
        return True

    def request(self) -> CancelRequest:
        """What the worker is told."""
        job, token = self.job, self.token or ""
        return CancelRequest(
            job.id, job.namespace, job.assignee_id, token, self.cancel_forced, job.cancel_reason
        )

    def leased(self) -> Leased:
        """What whoever asks for an assignee's jobs is told."""
        job, attempt = self.job, self.attempts[self.job.lease_version]
        return Leased(
            job.id, job.namespace, job.assignee_id, self.token or "", job.type, attempt.host
        )

    def wait(self) -> Wait:
        """What the parents' ends mean to a job that still waits for them."""
        states = [edge.outcome or JobState.INITIAL_PENDING for edge in self.edges]
        return wait_for(self.job.dependency_mode, states)

    def obstacle(self) -> str:
        """Why it can never run."""
        failed = (e for e in self.edges if e.outcome not in (None, JobState.COMPLETED))
        return next((f"parent {e.name!r} ended as {e.outcome}" for e in failed), "")

    def note_parent(self, parent: "Stored") -> bool:
        """Writes how a parent stands; True when it is one."""
        state, chained = parent.job.state, self.job.dependency_mode is DependencyMode.CHAIN
        mine = [edge for edge in self.edges if edge.number == parent.number]
        for edge in mine:
            edge.outcome = state if state in TERMINAL else None
            if chained and edge is self.edges[-1] and state is JobState.COMPLETED:
                self.parent_result = parent.job.result, parent.job.result_content_type
        return bool(mine)


def lanes_of(jobs: Sequence[Job]) -> dict[str, object]:
    """What a submission's event row says of its jobs beside their numbers."""
    keys = [(job.namespace, job.type, job.priority.value, job.tags) for job in jobs]
    lanes = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    return {
        "ids": tuple(job.id for job in jobs),
        "correlations": tuple(job.correlation_id for job in jobs),
        "lanes": tuple(
            {"namespace": namespace, "type": kind, "priority": priority, "tags": sorted(tags)}
            for namespace, kind, priority, tags in lanes
        ),
        "lane_of": tuple(lanes[key] for key in keys),
    }
