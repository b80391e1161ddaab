"""Every call of the contract as a step of a history, with what it is called with."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st
from tests.model import given
from tests.model.given import NewJob, Short, Told, at, in_one_call, mostly, token
from tests.model.lockstep import IDS, Name, Pair
from tests.model.searches import Asked, all_failures, all_pages, failures, searches
from tests.model.sides import AGES_S, TTL_S, Side

from queue_operator.backends.protocol import (
    CheckpointReport,
    LogLine,
    LogReport,
    Pause,
    ProgressReport,
    SpawnRequest,
)
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Demand, Job, Progress, TypeDefaults
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import LEGAL_PAIRS, Event, JobState

Walk = Callable[..., Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Step:
    """A kind of step. Its arguments are drawn from strategies, or from what makes one of how
    the stores stand. `share` says how often it is taken.
    """

    walk: Walk
    share: int
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Call(Short):
    """One step of a history."""

    step: Step
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.step.walk.__name__}({told})"


_STEPS: Final[list[Step]] = []
_NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
# Without a job hardly anything can happen.
_FIRST: Final = 2


def _step(share: int, **arguments: Any) -> Callable[[Walk], Walk]:
    def register(walk: Walk) -> Walk:
        _STEPS.append(Step(walk, share, arguments))
        return walk

    return register


@st.composite
def calls(draw: st.DrawFn, pair: Pair) -> Call:
    """What may come next."""
    choice = _STEPS if pair.jobs else _STEPS[:_FIRST]
    step = draw(st.sampled_from([step for step in choice for _ in range(step.share)]))
    arguments = {
        name: draw(one if isinstance(one, st.SearchStrategy) else one(pair))
        for name, one in step.arguments.items()
    }
    return Call(step, arguments)


# Submission and assignment


@_step(5, batch=given.batches, atomic=mostly(False, True))
async def submit(pair: Pair, batch: list[NewJob], atomic: bool) -> None:
    await pair.step(lambda side: side.backend.submit([j.on(side) for j in batch], atomic=atomic))


@_step(3, one=given.new_jobs)
async def enqueue_job(pair: Pair, one: NewJob) -> None:
    await pair.step(lambda side: side.backend.enqueue_job(one.on(side)))


@_step(
    10,
    demands=st.lists(given.demands, min_size=1, max_size=3),
    ttl_s=mostly(TTL_S, 330.0),
    defaults=given.defaults,
)
async def claim(
    pair: Pair, demands: list[Demand], ttl_s: float, defaults: dict[str, TypeDefaults]
) -> None:
    await pair.claiming(
        lambda side: side.backend.claim(demands, lease_ttl_s=ttl_s, defaults=defaults)
    )


@_step(
    3,
    worker=given.workers,
    tags=given.few_tags,
    limit=st.integers(1, 3),
    space=given.spaces,
    ttl_s=mostly(TTL_S, None),
)
async def dequeue_jobs(
    pair: Pair, worker: str, tags: frozenset[str], limit: int, space: str, ttl_s: float | None
) -> None:
    await pair.claiming(
        lambda side: side.backend.dequeue_jobs(
            worker, tags, limit, namespace=space, lease_ttl_s=ttl_s
        )
    )


# Outcomes


def _outcomes(pair: Pair) -> st.SearchStrategy[list[Told]]:
    return st.lists(given.told(pair), min_size=1, max_size=4)


@_step(12, batch=_outcomes, repeat=mostly(False, True))
async def settle(pair: Pair, batch: list[Told], repeat: bool) -> None:
    chosen = in_one_call(batch, pair)
    # As after a lost answer.
    chosen += chosen[:1] if repeat else []
    await pair.step(lambda side: side.backend.settle([one.on(side, pair) for one in chosen]))


@_step(4, name=given.held, whose=given.whose, result=st.sampled_from([b"", b"done"]))
async def complete_job(pair: Pair, name: Name, whose: str, result: bytes) -> None:
    await pair.step(
        lambda side: side.backend.complete_job(
            name[1], result, namespace=name[0], token=token(side, pair, name, whose)
        )
    )


_ENDS: Final = ("fail_job", "stop_job", "stop_job_with_retry", "mark_job_unknown_stopped")


@_step(
    4,
    method=st.sampled_from(_ENDS),
    name=given.held,
    whose=given.whose,
    message=mostly("boom", ""),
)
async def end_job(pair: Pair, method: str, name: Name, whose: str, message: str) -> None:
    await pair.step(
        lambda side: getattr(side.backend, method)(
            name[1], message, namespace=name[0], token=token(side, pair, name, whose)
        )
    )


@st.composite
def _changes(draw: st.DrawFn, pair: Pair) -> tuple[Name, JobState]:
    """Mostly a change that some row of the state table makes."""
    name = draw(given.stored(pair))
    legal = sorted(after for before, after in LEGAL_PAIRS if before is pair.state(name))
    anything = st.sampled_from(list(JobState))
    return name, draw(st.one_of(*[st.sampled_from(legal)] * 2, anything) if legal else anything)


@_step(
    4,
    change=_changes,
    whose=mostly("none", "current", "stale"),
    result=given.results,
    message=mostly("", "by hand"),
    times=mostly(1, 2),
)
async def update_job_status(
    pair: Pair,
    change: tuple[Name, JobState],
    whose: str,
    result: bytes | None,
    message: str,
    times: int,
) -> None:
    name, status = change
    # As after a lost answer.
    for _ in range(times):
        await pair.step(
            lambda side: side.backend.update_job_status(
                name[1],
                status,
                result,
                message,
                namespace=name[0],
                token=token(side, pair, name, whose),
            )
        )


@_step(4, name=given.stored, reset=st.booleans())
async def retry_now(pair: Pair, name: Name, reset: bool) -> None:
    outcome = Outcome(name[1], Event.RETRY_NOW, namespace=name[0], reset_attempts=reset)
    await pair.step(lambda side: side.backend.settle([outcome]))


# Cancellation


@_step(
    3,
    tags=given.few_tags,
    ids=st.lists(given.ids, max_size=3),
    space=given.spaces,
    force=st.booleans(),
    reason=mostly("", "why not"),
)
async def cancel_jobs(
    pair: Pair, tags: frozenset[str], ids: list[str], space: str, force: bool, reason: str
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

    await pair.step(call)


@_step(2, name=given.held, whose=given.whose, was_executing=st.booleans())
async def acknowledge_cancellation(pair: Pair, name: Name, whose: str, was_executing: bool) -> None:
    await pair.step(
        lambda side: side.backend.acknowledge_cancellation(
            name[1], was_executing, namespace=name[0], token=token(side, pair, name, whose)
        )
    )


@_step(1, workers=st.sets(given.workers))
async def pending_cancels(pair: Pair, workers: set[str]) -> None:
    await pair.step(lambda side: side.backend.pending_cancels(workers))


def _holding(pair: Pair) -> st.SearchStrategy[list[tuple[Name, str]]]:
    return st.lists(st.tuples(given.held(pair), given.whose), min_size=1, max_size=4)


def _held(side: Side, pair: Pair, holding: list[tuple[Name, str]]) -> list[Held]:
    return [
        Held(name[1], token(side, pair, name, whose) or "", namespace=name[0])
        for name, whose in holding
    ]


@_step(2, holding=_holding)
async def confirm_cancels(pair: Pair, holding: list[tuple[Name, str]]) -> None:
    await pair.step(lambda side: side.backend.confirm_cancels(_held(side, pair, holding)))


# Workers, leases and time


@_step(3, holding=_holding)
async def extend_leases(pair: Pair, holding: list[tuple[Name, str]]) -> None:
    await pair.step(
        lambda side: side.backend.extend_leases(_held(side, pair, holding), lease_ttl_s=TTL_S)
    )


@_step(5, seconds=st.sampled_from([0.0, *AGES_S]), outage=mostly(False, True))
async def expire_leases(pair: Pair, seconds: float, outage: bool) -> None:
    async def call(side: Side) -> Any:
        lost = await side.backend.expire_leases(lease_ttl_s=TTL_S)
        return sorted(lost, key=lambda one: (one.namespace, one.job_id))

    if seconds:
        await pair.age(seconds, outage)
    await pair.step(call)


@_step(3, seconds=st.sampled_from(AGES_S), outage=mostly(False, True))
async def age(pair: Pair, seconds: float, outage: bool) -> None:
    await pair.age(seconds, outage)


@_step(1, worker=given.workers)
async def mark_worker_unresponsive(pair: Pair, worker: str) -> None:
    await pair.step(lambda side: side.backend.mark_worker_unresponsive(worker))


@_step(1, space=mostly(None, "default", "other"))
async def reset_running_jobs(pair: Pair, space: str | None) -> None:
    await pair.step(lambda side: side.backend.reset_running_jobs(namespace=space))


def _reports(pair: Pair) -> st.SearchStrategy[list[tuple[Name, str, int, int]]]:
    ago = st.sampled_from([0, -30])
    one = st.tuples(given.held(pair), given.whose, st.integers(0, 100), ago)
    return st.lists(one, min_size=1, max_size=3)


@_step(2, reports=_reports)
async def record_progress(pair: Pair, reports: list[tuple[Name, str, int, int]]) -> None:
    def on(side: Side) -> list[ProgressReport]:
        return [
            ProgressReport(
                job_id=name[1],
                namespace=name[0],
                token=token(side, pair, name, whose) or "",
                progress=Progress(percent, "so far", at(side, seconds)),
            )
            for name, whose, percent, seconds in reports
        ]

    await pair.step(lambda side: side.backend.record_progress(on(side)))


def _checkpoints(pair: Pair) -> st.SearchStrategy[list[tuple[Name, str, int]]]:
    one = st.tuples(given.held(pair), given.whose, st.integers(1, 4))
    return st.lists(one, min_size=1, max_size=3)


@_step(3, reports=_checkpoints)
async def store_checkpoints(pair: Pair, reports: list[tuple[Name, str, int]]) -> None:
    """The claims that follow show what is kept."""

    def on(side: Side) -> list[CheckpointReport]:
        return [
            CheckpointReport(
                job_id=name[1],
                namespace=name[0],
                token=token(side, pair, name, whose) or "",
                number=number,
                data=b"%d" % number,
            )
            for name, whose, number in reports
        ]

    await pair.step(lambda side: side.backend.store_checkpoints(on(side)))


def _children(pair: Pair) -> st.SearchStrategy[list[tuple[Name, str, str, str]]]:
    one = st.tuples(given.held(pair), given.whose, st.sampled_from("123"), mostly("", *IDS[:2]))
    return st.lists(one, min_size=1, max_size=3)


@_step(2, children=_children)
async def spawn(pair: Pair, children: list[tuple[Name, str, str, str]]) -> None:
    def on(side: Side) -> list[SpawnRequest]:
        return [
            SpawnRequest(
                parent_id=name[1],
                namespace=name[0],
                token=token(side, pair, name, whose) or "",
                key=key,
                job=Job(id=own_id, type="child", payload=key.encode()),
            )
            for name, whose, key, own_id in children
        ]

    await pair.step(lambda side: side.backend.spawn(on(side)))


@_step(1, name=given.held, whose=given.whose, first=st.integers(1, 20))
async def append_logs(pair: Pair, name: Name, whose: str, first: int) -> None:
    lines = tuple(
        LogLine(number=n, at=_NOON, level="INFO", message="hello") for n in (first, first + 1)
    )

    async def call(side: Side) -> Any:
        said = token(side, pair, name, whose) or ""
        report = LogReport(job_id=name[1], namespace=name[0], token=said, lines=lines)
        await side.backend.append_logs([report])
        logs = await side.backend.job_log(name[1], namespace=name[0])
        return [(log.version, log.number, log.dropped, len(log.lines)) for log in logs]

    await pair.step(call)


# Pauses, suspended jobs and places


@_step(1, pause=given.pauses)
async def pause(pair: Pair, pause: Pause) -> None:
    await pair.step(lambda side: side.backend.pause(pause))


@_step(2, pause=given.pauses, rest=mostly(True, False))
async def resume(pair: Pair, pause: Pause, rest: bool) -> None:
    """Mostly all that is paused, or soon nothing would be claimed any more."""
    paused = {(pause.namespace, pause.type)}
    if rest:
        paused |= {(one.namespace, one.type) for one in await pair.model.backend.pauses()}
    for name in sorted(paused):
        await pair.step(partial(_go_on, *name))


async def _go_on(space: str, kind: str, side: Side) -> bool:
    return await side.backend.resume(space, kind)


@_step(1, space=mostly(None, "default"))
async def pauses(pair: Pair, space: str | None) -> None:
    await pair.step(lambda side: side.backend.pauses(space))


@_step(2, name=given.stored, others=st.lists(given.names, max_size=2))
async def suspend(pair: Pair, name: Name, others: list[Name]) -> None:
    wanted = dict.fromkeys([name, *others], True)
    await pair.step(lambda side: side.backend.set_suspended(wanted))


@_step(3, name=given.stored, rest=mostly(True, False))
async def resume_jobs(pair: Pair, name: Name, rest: bool) -> None:
    """Mostly all that are suspended, or soon nothing would be claimed any more."""
    held = {one for one, job in pair.jobs.items() if job.suspended} if rest else set()
    wanted = dict.fromkeys(sorted({name, *held}), False)
    await pair.step(lambda side: side.backend.set_suspended(wanted))


@_step(2, name=given.stored)
async def place_of(pair: Pair, name: Name) -> None:
    await pair.step(lambda side: side.backend.place_of(name[1], namespace=name[0]))


# Maintenance and queries


@_step(4, tags=given.few_tags, ids=given.ended_ids, space=given.spaces)
async def delete_jobs(pair: Pair, tags: frozenset[str], ids: list[str], space: str) -> None:
    async def call(side: Side) -> Any:
        try:
            return await side.backend.delete_jobs(tags, ids, namespace=space)
        except InvalidTransition:
            # Of several that still live, any may be named.
            return "refused"

    await pair.step(call)


@_step(1, ttl_s=st.sampled_from([30.0, 230.0]), space=mostly(None, "default", "other"))
async def cleanup_expired_jobs(pair: Pair, ttl_s: float, space: str | None) -> None:
    await pair.step(lambda side: side.backend.cleanup_expired_jobs(ttl_s, namespace=space))


@_step(4, search=searches())
async def search_jobs(pair: Pair, search: Asked) -> None:
    await pair.step(lambda side: all_pages(side, search))


@_step(2, search=failures())
async def search_failures(pair: Pair, search: Asked) -> None:
    await pair.step(lambda side: all_failures(side, search))


@_step(1, tags=given.tags, space=given.spaces)
async def get_job_stats(pair: Pair, tags: frozenset[str], space: str) -> None:
    await pair.step(lambda side: side.backend.get_job_stats(tags, namespace=space))


@_step(1, name=given.names)
async def get_history(pair: Pair, name: Name) -> None:
    await pair.step(lambda side: side.backend.get_history(name[1], namespace=name[0]))
