"""What every store does alike: arguments are checked, and the calls that differ in nothing but
their event become outcomes. A store implements the methods with a leading underscore, which
get checked arguments.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from queue_operator.backends.named import NamedJobs
from queue_operator.backends.owners import Owners
from queue_operator.backends.protocol import (
    FailurePage,
    FailureSearch,
    Freed,
    JobHistory,
    JobPage,
    JobSearch,
    SearchOrder,
    StatsWindow,
    WindowStats,
)
from queue_operator.backends.tallies import check_window
from queue_operator.backends.usages_base import UsagesBase
from queue_operator.domain.batch import check_batch, check_each, moved_to, unplaced
from queue_operator.domain.errors import (
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    QueueError,
)
from queue_operator.domain.job import (
    DEFAULT_NAMESPACE,
    Assignment,
    Cancelled,
    Demand,
    Job,
    JobStats,
    Submitted,
    TypeDefaults,
)
from queue_operator.domain.lease import Held, LeaseAnswer, Leased, Lost
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.storable import storable
from queue_operator.domain.validation import (
    REASON_CHARACTERS,
    Limits,
    check_bytes,
    check_choice,
    check_choices,
    check_defaults,
    check_demand,
    check_flag,
    check_held,
    check_job,
    check_kind,
    check_limit,
    check_limits,
    check_sequence,
    check_tags,
    check_text,
    check_texts,
    check_time,
    check_token,
    check_ttl,
)
from queue_operator.domain.views import Phase
from queue_operator.tracing.current import in_trace

_MAX_PAGE: Final = 1000
_FAILED_STATES: Final = {JobState.DEAD_LETTER, JobState.FAILED_RETRY}
_FAILED_PHASES: Final = {Phase.FAILED, Phase.DEAD_LETTER, Phase.RETRYING}


class BaseBackend(NamedJobs, UsagesBase):
    """Backend, Search, History and Failures but for the storage itself."""

    def __init__(self, limits: Limits, cancel_timeout_s: float) -> None:
        self._check(limits, cancel_timeout_s)
        self._limits = limits
        self._owners = Owners(lambda named: self._owners_of(named))

    @staticmethod
    def _check(limits: Limits, cancel_timeout_s: float) -> None:
        check_limits(limits)
        check_ttl("cancel_timeout_s", cancel_timeout_s)

    # Submission

    async def enqueue_job(self, job: Job) -> str:
        check_job(job, self._limits)
        [job] = in_trace([job])
        return (await self._submit_one(job)).job_id

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]:
        return [answer.job_id for answer in await self.submit(jobs)]

    async def submit(
        self, jobs: Sequence[Job], *, atomic: bool = True, patient: bool = True
    ) -> list[Submitted]:
        check_flag("atomic", atomic)
        check_flag("patient", patient)
        jobs = in_trace(jobs)
        if atomic:
            check_batch(jobs, self._limits)
            return await self._submit(jobs, atomic=True) if jobs else []
        errors = check_each(jobs, self._limits)
        good = [place for place in range(len(jobs)) if place not in errors]
        stored: list[Submitted] = []
        if good and patient:
            stored = await self._submit([jobs[p] for p in good], atomic=False)
        elif good:
            stored = await self._submit_each([jobs[p] for p in good])
        answers = {p: _placed(p, answer) for p, answer in zip(good, stored, strict=True)}
        for place, error in errors.items():
            answers[place] = Submitted(job_id=getattr(jobs[place], "id", ""), error=error)
        return [answers[place] for place in range(len(jobs))]

    # Assignment

    async def dequeue_jobs(
        self,
        assignee_id: str,
        tags: Collection[str],
        limit: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        lease_ttl_s: float | None = None,
    ) -> list[Job]:
        check_tags("tags", tags, self._limits)
        demand = Demand(
            assignee_id=assignee_id, limit=limit, namespace=namespace, tags=frozenset(tags)
        )
        check_demand(demand, self._limits)
        if lease_ttl_s is not None:
            check_ttl("lease_ttl_s", lease_ttl_s)
        return await self._dequeue(demand, lease_ttl_s)

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        check_ttl("lease_ttl_s", lease_ttl_s)
        check_sequence("demands", demands)
        for demand in demands:
            check_demand(demand, self._limits)
        check_defaults(defaults or {})
        claimed = await self._claim(demands, lease_ttl_s, defaults or {})
        self._owners.remember(claimed)
        return claimed

    # Outcomes

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        check_sequence("outcomes", outcomes)
        good: dict[int, Outcome] = {}
        answers: dict[int, Settled] = {}
        for place, outcome in enumerate(outcomes):
            if not isinstance(outcome, Outcome):
                raise InvalidArgument(f"outcomes[{place}]", "must be an Outcome")
            try:
                good[place] = storable(outcome, self._limits)
            except InvalidArgument as error:
                answers[place] = Settled(outcome.job_id, outcome.namespace, error=error)
        heard = await self._owners.heard(list(good.values()))
        settled = await self._settle(heard) if good else []
        answers |= zip(good, settled, strict=True)
        return [answers[place] for place in range(len(outcomes))]

    async def complete_job(
        self,
        job_id: str,
        result: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        check_bytes("result", result, self._limits.result_bytes)
        return await self._settle_one(job_id, namespace, token, Event.COMPLETE, result=result)

    async def fail_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        message = self._message(error_msg, required=True)
        return await self._settle_one(job_id, namespace, token, Event.FAIL, message=message)

    async def stop_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        message = self._message(error_msg)
        return await self._settle_one(job_id, namespace, token, Event.STOP, message=message)

    async def stop_job_with_retry(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        message = self._message(error_msg)
        return await self._settle_one(
            job_id, namespace, token, Event.STOP_WITH_RETRY, message=message
        )

    async def mark_job_unknown_stopped(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        message = self._message(error_msg)
        try:
            return await self._settle_one(
                job_id, namespace, token, Event.MARK_UNKNOWN_STOPPED, message=message
            )
        except InvalidTransition as error:
            if error.state == JobState.UNKNOWN_STOPPED:
                return {}
            raise

    async def update_job_status(
        self,
        job_id: str,
        status: JobState,
        result: bytes | None = None,
        error_msg: str = "",
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        check_text("job_id", job_id, self._limits.id_characters)
        self._check_namespace(namespace)
        check_choice("status", status, JobState)
        check_token("token", token, required=False)
        if result is not None:
            check_bytes("result", result, self._limits.result_bytes)
        message = self._message(error_msg)
        return await self._update_status(namespace, job_id, token, status, result, message)

    async def _settle_one(
        self,
        job_id: str,
        namespace: str,
        token: str | None,
        event: Event,
        *,
        result: bytes | None = None,
        message: str | None = None,
    ) -> Freed:
        check_text("job_id", job_id, self._limits.id_characters)
        error = None if message is None else ErrorInfo(message)
        outcome = Outcome(
            job_id, event, namespace=namespace, token=token, result=result, error=error
        )
        [answer] = await self.settle([outcome])
        if answer.error is not None:
            raise answer.error
        return {answer.freed_assignee_id: 1} if answer.freed_assignee_id else {}

    def _message(self, text: object, *, required: bool = False) -> str:
        """A long message is no reason to leave a job running: it is cut."""
        limit = self._limits.error_characters
        cut = text[:limit] if isinstance(text, str) else text
        check_text("error_msg", cut, limit, required=required)
        return str(cut)

    # Cancellation

    async def cancel_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        force: bool = False,
        reason: str = "",
    ) -> Cancelled:
        self._check_selection(namespace, tags, job_ids)
        check_flag("force", force)
        check_text("reason", reason, REASON_CHARACTERS, required=False)
        return await self._cancel(namespace, frozenset(tags), list(job_ids), force, reason)

    async def acknowledge_cancellation(
        self,
        job_id: str,
        was_executing: bool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        check_flag("was_executing", was_executing)
        event = Event.ACK_EXECUTING if was_executing else Event.ACK_UNKNOWN
        await self._settle_one(job_id, namespace, token, event)

    # Workers and leases

    async def mark_worker_unresponsive(self, assignee_id: str) -> Freed:
        check_text("assignee_id", assignee_id, self._limits.id_characters)
        return await self._lose(assignee_id=assignee_id, namespace=None)

    async def extend_leases(self, held: Sequence[Held], *, lease_ttl_s: float) -> list[LeaseAnswer]:
        check_ttl("lease_ttl_s", lease_ttl_s)
        check_sequence("held", held)
        for place, one in enumerate(held):
            check_held(place, one, self._limits)
        heard = await self._owners.heard(held)
        answers = await self._extend(heard, lease_ttl_s) if held else []
        return [
            answer if one.token == answer.token else replace(answer, token=one.token)
            for one, answer in zip(held, answers, strict=True)
        ]

    async def leased(self, assignee_ids: Collection[str]) -> list[Leased]:
        check_texts("assignee_ids", assignee_ids, self._limits.id_characters)
        return await self._leased(assignee_ids) if assignee_ids else []

    async def expire_leases(self, *, lease_ttl_s: float, limit: int = 1000) -> list[Lost]:
        check_ttl("lease_ttl_s", lease_ttl_s)
        check_limit("limit", limit)
        return await self._expire(lease_ttl_s, limit)

    # Queries

    async def get_job(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Job:
        check_text("job_id", job_id, self._limits.id_characters)
        self._check_namespace(namespace)
        found = await self._get(namespace, [job_id])
        if job_id not in found:
            raise JobNotFound(job_id, namespace)
        return found[job_id]

    async def look_up(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Job]:
        check_texts("job_ids", job_ids, self._limits.id_characters)
        self._check_namespace(namespace)
        return await self._look_up(namespace, list(job_ids))

    async def get_job_stats(
        self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> JobStats:
        check_tags("tags", tags, self._limits)
        self._check_namespace(namespace)
        return await self._stats(namespace, frozenset(tags))

    async def window_stats(self, window: StatsWindow) -> WindowStats:
        check_kind("window", window, StatsWindow)
        self._check_namespace(window.namespace)
        check_window(window)
        return await self._window(window)

    async def roll_up(self, *, limit: int = 1000) -> int:
        check_limit("limit", limit)
        return await self._roll_up(limit)

    async def search_jobs(self, search: JobSearch) -> JobPage:
        check_kind("search", search, JobSearch)
        self._check_page(search.namespace, search.limit, search.cursor)
        check_tags("tags", search.tags, self._limits)
        check_texts("types", search.types, self._limits.id_characters)
        check_choices("states", search.states, JobState)
        check_choices("phases", search.phases, Phase)
        check_choices("priorities", search.priorities, Priority)
        check_choice("order", search.order, SearchOrder)
        check_flag("count", search.count)
        for field in ("created_after", "created_before", "updated_after"):
            check_time(field, getattr(search, field))
        return await self._search(search)

    async def search_failures(self, search: FailureSearch) -> FailurePage:
        check_kind("search", search, FailureSearch)
        self._check_page(search.namespace, search.limit, search.cursor)
        check_texts("types", search.types, self._limits.id_characters)
        check_text("error_code", search.error_code, self._limits.id_characters, required=False)
        check_choices("states", search.states, JobState)
        check_choices("categories", search.categories, ErrorCategory)
        check_flag("count", search.count)
        for field in ("failed_after", "failed_before"):
            check_time(field, getattr(search, field))
        check_choices("phases", search.phases, Phase)
        for field, found, failed in (
            ("states", set(search.states), _FAILED_STATES),
            ("phases", set(search.phases), _FAILED_PHASES),
        ):
            if wrong := sorted(found - failed):
                raise InvalidArgument(field, f"{', '.join(wrong)} is no failure")
        return await self._search_failures(search)

    async def get_history(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> JobHistory:
        check_text("job_id", job_id, self._limits.id_characters)
        self._check_namespace(namespace)
        history = await self._history(namespace, job_id)
        if history is None:
            raise JobNotFound(job_id, namespace)
        return history

    def _check_page(self, namespace: str, limit: int, cursor: str) -> None:
        self._check_namespace(namespace)
        check_limit("limit", limit, _MAX_PAGE)
        check_text("cursor", cursor, REASON_CHARACTERS, required=False)

    # Maintenance

    async def reset_running_jobs(self, *, namespace: str | None = None) -> Freed:
        if namespace is not None:
            self._check_namespace(namespace)
        return await self._lose(assignee_id=None, namespace=namespace)

    async def cleanup_expired_jobs(self, ttl_s: float, *, namespace: str | None = None) -> int:
        check_ttl("ttl_s", ttl_s)
        if namespace is not None:
            self._check_namespace(namespace)
        return await self._cleanup(ttl_s, namespace)

    async def delete_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        self._check_selection(namespace, tags, job_ids)
        return await self._delete(namespace, frozenset(tags), list(job_ids))

    def _check_namespace(self, namespace: str) -> None:
        check_text("namespace", namespace, self._limits.id_characters)

    def _check_selection(
        self, namespace: str, tags: Collection[str], job_ids: Collection[str]
    ) -> None:
        self._check_namespace(namespace)
        check_tags("tags", tags, self._limits)
        check_texts("job_ids", job_ids, self._limits.id_characters)
        if not tags and not job_ids:
            raise InvalidArgument("job_ids", "give tags or ids: both empty would select all")

    # What a store implements

    async def _submit_one(self, job: Job) -> Submitted:
        """Raises what the answer would have as its error."""
        try:
            [answer] = await self._submit([job], atomic=True)
        except QueueError as error:
            raise unplaced(error) from None
        return answer

    async def _submit_each(self, jobs: Sequence[Job]) -> list[Submitted]:
        """As `_submit`, not atomic, of callers who know nothing of each other. Where one waits for
        another's key, see KeyHeld.
        """
        return await self._submit(jobs, atomic=False)

    @abstractmethod
    async def _submit(self, jobs: Sequence[Job], *, atomic: bool) -> list[Submitted]:
        """With `atomic`, raises and stores nothing; without, an error is part of the answer."""

    @abstractmethod
    async def _dequeue(self, demand: Demand, lease_ttl_s: float | None) -> list[Job]: ...

    @abstractmethod
    async def _claim(
        self,
        demands: Sequence[Demand],
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults],
    ) -> list[Assignment]: ...

    @abstractmethod
    async def _owners_of(self, named: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """See `owners.Find`."""

    @abstractmethod
    async def _settle(self, outcomes: Sequence[Outcome]) -> list[Settled]: ...

    @abstractmethod
    async def _update_status(
        self,
        namespace: str,
        job_id: str,
        token: str | None,
        status: JobState,
        result: bytes | None,
        error_msg: str,
    ) -> Freed: ...

    @abstractmethod
    async def _cancel(
        self, namespace: str, tags: frozenset[str], job_ids: list[str], force: bool, reason: str
    ) -> Cancelled: ...

    @abstractmethod
    async def _lose(self, *, assignee_id: str | None, namespace: str | None) -> Freed:
        """LOSE of every leased job of the assignee, or of the namespace, or of all."""

    @abstractmethod
    async def _leased(self, assignee_ids: Collection[str]) -> list[Leased]: ...

    @abstractmethod
    async def _extend(self, held: Sequence[Held], lease_ttl_s: float) -> list[LeaseAnswer]: ...

    @abstractmethod
    async def _expire(self, lease_ttl_s: float, limit: int) -> list[Lost]: ...

    @abstractmethod
    async def _get(self, namespace: str, job_ids: Sequence[str]) -> dict[str, Job]:
        """By id; those that do not exist are left out."""

    @abstractmethod
    async def _look_up(self, namespace: str, job_ids: Sequence[str]) -> dict[str, Job]:
        """The same without payload and result."""

    @abstractmethod
    async def _stats(self, namespace: str, tags: frozenset[str]) -> JobStats: ...

    @abstractmethod
    async def _window(self, window: StatsWindow) -> WindowStats: ...

    @abstractmethod
    async def _roll_up(self, limit: int) -> int: ...

    @abstractmethod
    async def _search(self, search: JobSearch) -> JobPage: ...

    @abstractmethod
    async def _search_failures(self, search: FailureSearch) -> FailurePage: ...

    @abstractmethod
    async def _history(self, namespace: str, job_id: str) -> JobHistory | None: ...

    @abstractmethod
    async def _cleanup(self, ttl_s: float, namespace: str | None) -> int: ...

    @abstractmethod
    async def _delete(self, namespace: str, tags: frozenset[str], job_ids: list[str]) -> int: ...


def _placed(place: int, answer: Submitted) -> Submitted:
    """The answer with an error that names the job's place among all, not among the good ones."""
    error = answer.error
    return answer if error is None else replace(answer, error=moved_to(place, error))
