"""Random histories of everything the contract has, on two stores in lockstep."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.model import given
from tests.model.given import NewJob, Told, again, in_one_call, mostly, token
from tests.model.lockstep import Name, Pair
from tests.model.searches import Asked, all_failures, all_pages, failures, searches
from tests.model.sides import AGES_S, TTL_S, Side

from queue_operator.backends.protocol import ProgressReport
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Demand, Progress, TypeDefaults
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState

Call = Callable[[Side], Awaitable[Any]]
T = TypeVar("T")


class Histories(RuleBasedStateMachine):
    """`pair` makes two empty stores; `loop` runs the calls."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    pair: ClassVar[Callable[[], Coroutine[Any, Any, Pair]]]
    walked: ClassVar[int] = 0
    histories: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.stores: Pair = self._run(type(self).pair())
        type(self).histories += 1

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def _step(self, call: Call) -> None:
        type(self).walked += 1
        self._run(self.stores.step(call))

    def _claiming(self, call: Call) -> None:
        type(self).walked += 1
        self._run(self.stores.claiming(call))

    def _token(self, side: Side, name: Name, whose: str) -> str | None:
        return token(side, self.stores, name, whose)

    def teardown(self) -> None:
        try:
            # What comes after a difference would only be more of the same.
            if self.stores.agree:
                self._run(self.stores.finish())
        finally:
            self._run(self.stores.close())

    # Submission and assignment

    @rule(batch=st.lists(given.new_jobs(), min_size=1, max_size=4), atomic=st.booleans())
    def submit(self, batch: list[NewJob], atomic: bool) -> None:
        self._step(lambda side: side.backend.submit([one.on(side) for one in batch], atomic=atomic))

    @rule(one=given.new_jobs())
    def enqueue_job(self, one: NewJob) -> None:
        self._step(lambda side: side.backend.enqueue_job(one.on(side)))

    @rule(
        demands=st.lists(given.demands, min_size=1, max_size=3),
        ttl_s=mostly(TTL_S, 330.0),
        defaults=given.defaults,
    )
    def claim(self, demands: list[Demand], ttl_s: float, defaults: dict[str, TypeDefaults]) -> None:
        self._claiming(
            lambda side: side.backend.claim(demands, lease_ttl_s=ttl_s, defaults=defaults)
        )

    @rule(
        worker=given.workers,
        tags=given.few_tags,
        limit=st.integers(1, 3),
        space=given.spaces,
        ttl_s=mostly(TTL_S, None),
    )
    def dequeue_jobs(
        self, worker: str, tags: frozenset[str], limit: int, space: str, ttl_s: float | None
    ) -> None:
        self._claiming(
            lambda side: side.backend.dequeue_jobs(
                worker, tags, limit, namespace=space, lease_ttl_s=ttl_s
            )
        )

    # Outcomes

    @rule(batch=st.lists(given.told(), min_size=1, max_size=4), repeat=mostly(False, True))
    def settle(self, batch: list[Told], repeat: bool) -> None:
        chosen = in_one_call(batch, self.stores)
        chosen = again(chosen) if repeat else chosen
        self._step(lambda side: side.backend.settle([one.on(side, self.stores) for one in chosen]))

    @precondition(lambda self: self.stores.claims)
    @rule(name=given.names, whose=given.whose, result=st.sampled_from([b"", b"done"]))
    def complete_job(self, name: Name, whose: str, result: bytes) -> None:
        space, job_id = name
        self._step(
            lambda side: side.backend.complete_job(
                job_id, result, namespace=space, token=self._token(side, name, whose)
            )
        )

    @precondition(lambda self: self.stores.claims)
    @rule(
        method=st.sampled_from(
            ["fail_job", "stop_job", "stop_job_with_retry", "mark_job_unknown_stopped"]
        ),
        name=given.names,
        whose=given.whose,
        message=mostly("boom", ""),
    )
    def end_job(self, method: str, name: Name, whose: str, message: str) -> None:
        self._step(
            lambda side: getattr(side.backend, method)(
                name[1], message, namespace=name[0], token=self._token(side, name, whose)
            )
        )

    @rule(
        name=given.names,
        whose=mostly("none", "current", "stale"),
        status=st.sampled_from(list(JobState)),
        result=given.results,
        message=mostly("", "by hand"),
    )
    def update_job_status(
        self, name: Name, whose: str, status: JobState, result: bytes | None, message: str
    ) -> None:
        space, job_id = name
        self._step(
            lambda side: side.backend.update_job_status(
                job_id,
                status,
                result,
                message,
                namespace=space,
                token=self._token(side, name, whose),
            )
        )

    @rule(name=given.names, reset=st.booleans())
    def retry_now(self, name: Name, reset: bool) -> None:
        outcome = Outcome(name[1], Event.RETRY_NOW, namespace=name[0], reset_attempts=reset)
        self._step(lambda side: side.backend.settle([outcome]))

    # Cancellation

    @rule(
        tags=given.few_tags,
        ids=st.lists(given.ids, max_size=3),
        space=given.spaces,
        force=st.booleans(),
        reason=mostly("", "why not"),
    )
    def cancel_jobs(
        self, tags: frozenset[str], ids: list[str], space: str, force: bool, reason: str
    ) -> None:
        async def call(side: Side) -> Any:
            answer = await side.backend.cancel_jobs(
                tags, ids, namespace=space, force=force, reason=reason
            )
            return (
                sorted(answer.cancelled_job_ids),
                sorted(answer.unknown_job_ids),
                sorted(answer.requests, key=lambda request: request.job_id),
            )

        self._step(call)

    @precondition(lambda self: self.stores.claims)
    @rule(name=given.names, whose=given.whose, was_executing=st.booleans())
    def acknowledge_cancellation(self, name: Name, whose: str, was_executing: bool) -> None:
        self._step(
            lambda side: side.backend.acknowledge_cancellation(
                name[1], was_executing, namespace=name[0], token=self._token(side, name, whose)
            )
        )

    @rule(workers=st.sets(given.workers))
    def pending_cancels(self, workers: set[str]) -> None:
        self._step(lambda side: side.backend.pending_cancels(workers))

    @precondition(lambda self: self.stores.claims)
    @rule(held=st.lists(st.tuples(given.names, given.whose), min_size=1, max_size=3))
    def confirm_cancels(self, held: list[tuple[Name, str]]) -> None:
        self._step(lambda side: side.backend.confirm_cancels(self._held(side, held)))

    def _held(self, side: Side, held: list[tuple[Name, str]]) -> list[Held]:
        return [
            Held(name[1], self._token(side, name, whose) or "", namespace=name[0])
            for name, whose in held
        ]

    # Workers, leases and time

    @precondition(lambda self: self.stores.claims)
    @rule(held=st.lists(st.tuples(given.names, given.whose), min_size=1, max_size=4))
    def extend_leases(self, held: list[tuple[Name, str]]) -> None:
        self._step(
            lambda side: side.backend.extend_leases(self._held(side, held), lease_ttl_s=TTL_S)
        )

    @precondition(lambda self: self.stores.claims)
    @rule(seconds=st.sampled_from([0.0, *AGES_S]), outage=mostly(False, True))
    def expire_leases(self, seconds: float, outage: bool) -> None:
        async def call(side: Side) -> Any:
            lost = await side.backend.expire_leases(lease_ttl_s=TTL_S)
            return sorted(lost, key=lambda one: (one.namespace, one.job_id))

        if seconds:
            self.age(seconds, outage)
        self._step(call)

    @rule(seconds=st.sampled_from(AGES_S), outage=mostly(False, True))
    def age(self, seconds: float, outage: bool) -> None:
        type(self).walked += 1
        self._run(self.stores.age(seconds, outage))

    @precondition(lambda self: self.stores.claims)
    @rule(worker=given.workers)
    def mark_worker_unresponsive(self, worker: str) -> None:
        self._step(lambda side: side.backend.mark_worker_unresponsive(worker))

    @precondition(lambda self: self.stores.claims)
    @rule(space=mostly(None, "default", "other"))
    def reset_running_jobs(self, space: str | None) -> None:
        self._step(lambda side: side.backend.reset_running_jobs(namespace=space))

    @precondition(lambda self: self.stores.claims)
    @rule(
        reports=st.lists(
            st.tuples(given.names, given.whose, st.integers(0, 100), st.sampled_from([0, -30])),
            min_size=1,
            max_size=3,
            unique_by=lambda report: report[0],
        )
    )
    def record_progress(self, reports: list[tuple[Name, str, int, int]]) -> None:
        def on(side: Side) -> list[ProgressReport]:
            return [
                ProgressReport(
                    job_id=name[1],
                    namespace=name[0],
                    token=self._token(side, name, whose) or "",
                    progress=Progress(percent, "so far", given.at(side, seconds)),
                )
                for name, whose, percent, seconds in reports
            ]

        self._step(lambda side: side.backend.record_progress(on(side)))

    # Maintenance and queries

    @rule(tags=given.few_tags, ids=st.lists(given.ids, max_size=2), space=given.spaces)
    def delete_jobs(self, tags: frozenset[str], ids: list[str], space: str) -> None:
        async def call(side: Side) -> Any:
            try:
                return await side.backend.delete_jobs(tags, ids, namespace=space)
            except InvalidTransition:
                # Of several that still live, any may be named.
                return "refused"

        self._step(call)

    @rule(ttl_s=st.sampled_from([30.0, 230.0]), space=mostly(None, "default", "other"))
    def cleanup_expired_jobs(self, ttl_s: float, space: str | None) -> None:
        self._step(lambda side: side.backend.cleanup_expired_jobs(ttl_s, namespace=space))

    @rule(search=searches())
    def search_jobs(self, search: Asked) -> None:
        self._step(lambda side: all_pages(side, search))

    @rule(search=failures())
    def search_failures(self, search: Asked) -> None:
        self._step(lambda side: all_failures(side, search))

    @rule(tags=given.tags, space=given.spaces)
    def get_job_stats(self, tags: frozenset[str], space: str) -> None:
        self._step(lambda side: side.backend.get_job_stats(tags, namespace=space))

    @rule(name=given.names)
    def get_history(self, name: Name) -> None:
        self._step(lambda side: side.backend.get_history(name[1], namespace=name[0]))
