"""How a queue does, in one sentence: a level, what causes it, and what to do next. Pure.

Everybody who asks is told the same: the page, `queue-operator top` and `why`, and whoever reads
`GET /v1/verdict`.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from queue_operator.domain.situation import (
    FAILING_SHARE,
    FEW_FAILURES,
    GRACE_S,
    IDLE_S,
    LATE_S,
    LEVELS,
    Cause,
    Code,
    Hold,
    Level,
    Situation,
    TypeNow,
    Verdict,
    WorkerNow,
)
from queue_operator.domain.untold import untold
from queue_operator.domain.words import command, listed, many, span, text

_MOST_NAMED: Final = 10
_KEEPS_ALL: Final = (Code.PAUSED, Code.NO_WORKER, Code.DRAINING)
"""No job of the type starts."""


def judge(now: Situation) -> Verdict:
    """The verdict on a situation."""
    crew = _crew(now)
    held, hindered = _hindrances(now, crew)
    causes = [*held, *_failing(now), *_lost(now), *_silent(now), *_crowded(now, crew, hindered)]
    causes += untold(now)
    causes.sort(key=lambda cause: -LEVELS.index(cause.level))
    level = max((cause.level for cause in causes), key=LEVELS.index, default=Level.HEALTHY)
    if now.due and sum(one.due for one in now.types if one.type in hindered) == now.due:
        level = Level.STUCK
        causes.sort(key=lambda cause: cause.code not in _KEEPS_ALL)
    return Verdict(level=level, sentence=_sentence(level, causes, now), causes=tuple(causes))


def _sentence(level: Level, causes: Sequence[Cause], now: Situation) -> str:
    word = level.value.capitalize()
    if level is Level.HEALTHY:
        return f"{word}: {_quiet(now)}."
    more = sum(cause.level is not Level.HEALTHY for cause in causes) - 1
    others = f" (and {many(more, 'other cause')})" if more else ""
    return f"{word}: {causes[0].message}{others}."


def _quiet(now: Situation) -> str:
    later = f"; {many(now.later, 'job')} may not start yet" if now.later else ""
    if not now.due and not now.running:
        return f"nothing runs, and nothing could{later}"
    done = sum(one.completed for one in now.types)
    told = f"{many(now.running, 'job')} running, {now.due:,} about to start, "
    return f"{told}{done:,} completed in {span(now.window_s)}{later}"


# Who would take jobs of a type


@dataclass(slots=True)
class _Takers:
    """Of the workers that are there, those that handle a type; `slots`, and the `free` ones, are of
    those `taking` jobs, which do not drain.
    """

    workers: int = 0
    taking: int = 0
    slots: int = 0
    free: int = 0

    def add(self, one: WorkerNow) -> None:
        self.workers += 1
        if not one.draining:
            self.taking += 1
            self.slots += one.capacity
            self.free += one.free


_Crew = Mapping[str, _Takers]


def _crew(now: Situation) -> _Crew:
    """Of each type its takers. Looks at each worker once: there may be hundreds, for thousands of
    types.
    """
    of_any, found = _Takers(), {one.type: _Takers() for one in now.types}
    for worker in now.workers:
        if not worker.is_there:
            continue
        if not worker.types:
            of_any.add(worker)
        for kind in worker.types & found.keys():
            found[kind].add(worker)
    for takers in found.values():
        takers.workers += of_any.workers
        takers.taking += of_any.taking
        takers.slots += of_any.slots
        takers.free += of_any.free
    return found


# What keeps jobs of a type from starting


def _hindrances(now: Situation, crew: _Crew) -> tuple[list[Cause], frozenset[str]]:
    """Causes, and the types of which nothing starts."""
    found: dict[Code, list[TypeNow]] = {}
    held = {hold.type for hold in now.holds}
    for one in now.types:
        if one.due and (code := _hindrance(one, crew[one.type], held, now)) is not None:
            found.setdefault(code, []).append(one)
    hindered = frozenset(
        one.type for code, types in found.items() if code in _KEEPS_ALL for one in types
    )
    causes = [_TOLD[code](types, now) for code, types in found.items()]
    return causes + _idle_holds(now, found.get(Code.PAUSED, ())), hindered


def _hindrance(one: TypeNow, takers: _Takers, held: Set[str], now: Situation) -> Code | None:
    if "" in held or one.type in held:
        return Code.PAUSED
    if one.oldest_s < GRACE_S:
        return None
    if not takers.workers:
        return Code.NO_WORKER
    if not takers.taking:
        return Code.DRAINING
    if not takers.free or not now.may_run:
        return None
    is_idle = not one.running and not one.completed and not one.attempts_failed
    if is_idle and one.oldest_s >= IDLE_S:
        return Code.NOT_TAKEN
    return Code.LATE if one.oldest_s >= LATE_S else None


def _paused(types: Sequence[TypeNow], now: Situation) -> Cause:
    whole = next((hold for hold in now.holds if not hold.type), None)
    named_now = {one.type for one in types}
    holds = [whole] if whole else [hold for hold in now.holds if hold.type in named_now]
    hold = whole or next(hold for hold in holds if hold.type == types[0].type)
    if len({(one.by, one.reason) for one in holds}) > 1:
        # What is true of one only is not said of all.
        hold = Hold(type=hold.type)
    what = "the namespace" if whole else _named(types)
    by = f" by {text(hold.by)}" if hold.by else ""
    because = f" ({text(hold.reason)})" if hold.reason else ""
    verb = "is" if whole or len(types) == 1 else "are"
    return Cause(
        code=Code.PAUSED,
        level=Level.DEGRADED,
        message=f"{what} {verb} paused{by}{because}, and {_waiting(types)}",
        next_step="Resume it once the reason is gone.",
        command=_resume(hold.type, now),
        types=() if whole else _names(types),
        evidence={**_counted(types), "by": hold.by, "reason": hold.reason},
    )


def _without_worker(types: Sequence[TypeNow], now: Situation) -> Cause:
    there = sum(worker.is_there for worker in now.workers)
    who = "no connected worker handles" if there else "no worker is connected for"
    return Cause(
        code=Code.NO_WORKER,
        level=Level.DEGRADED,
        message=f"{who} {_named(types)}, and {_waiting(types)}",
        next_step="Start a worker that handles it, or see why none is connected.",
        command=f"kubectl -n {shlex.quote(now.namespace)} get queueworkers,pods",
        types=_names(types),
        evidence={**_counted(types), "workers": there},
    )


def _draining(types: Sequence[TypeNow], now: Situation) -> Cause:
    return Cause(
        code=Code.DRAINING,
        level=Level.DEGRADED,
        message=f"every worker that handles {_named(types)} drains, and {_waiting(types)}",
        next_step="Let a worker take jobs again, or start another one.",
        command=f"kubectl -n {shlex.quote(now.namespace)} get queueworkers",
        types=_names(types),
        evidence=_counted(types),
    )


def _not_taken(types: Sequence[TypeNow], now: Situation) -> Cause:
    waiting = _waiting(types)
    return Cause(
        code=Code.NOT_TAKEN,
        level=Level.DEGRADED,
        message=f"free workers leave {_named(types)} alone: {waiting}",
        next_step="See why: maybe no worker asks for the tags that these jobs carry.",
        command=command(
            f"list --type {shlex.quote(types[0].type)} --state SCHEDULED", now.namespace
        ),
        types=_names(types),
        evidence=_counted(types),
    )


def _late(types: Sequence[TypeNow], now: Situation) -> Cause:
    return Cause(
        code=Code.LATE,
        level=Level.DEGRADED,
        message=f"{_named(types)} {'is' if len(types) == 1 else 'are'} late although slots are "
        f"free: {_waiting(types)}",
        next_step="See which wait: maybe no worker asks for their tags, or there are too few slots "
        "for so many short jobs.",
        command=command(
            f"list --type {shlex.quote(types[0].type)} --state SCHEDULED", now.namespace
        ),
        types=_names(types),
        evidence=_counted(types),
    )


_TOLD: Final[Mapping[Code, Callable[[Sequence[TypeNow], Situation], Cause]]] = {
    Code.PAUSED: _paused,
    Code.NO_WORKER: _without_worker,
    Code.DRAINING: _draining,
    Code.NOT_TAKEN: _not_taken,
    Code.LATE: _late,
}


def _idle_holds(now: Situation, told: Iterable[TypeNow]) -> list[Cause]:
    """Pauses that keep nothing back as yet."""
    known = {one.type for one in told}
    if known and any(not hold.type for hold in now.holds):
        return []
    left = [hold for hold in now.holds if hold.type not in known]
    return [
        Cause(
            code=Code.PAUSED,
            level=Level.HEALTHY,
            message=f"{text(hold.type) or 'the namespace'} is paused, and nothing waits for it",
            next_step="Resume it once the reason is gone.",
            command=_resume(hold.type, now),
            types=(hold.type,) if hold.type else (),
            evidence={"by": hold.by, "reason": hold.reason},
        )
        for hold in left[:_MOST_NAMED]
    ]


# What fails, who is gone, and where it is crowded


def _failing(now: Situation) -> list[Cause]:
    bad = [one for one in now.types if _fails(one)]
    if not bad:
        return []
    bad.sort(key=lambda one: (-one.attempts_failed, one.type))
    failed = sum(one.attempts_failed for one in bad)
    made = failed + sum(one.completed for one in bad)
    mostly = f", mostly {text(bad[0].code)}" if bad[0].code else ""
    verb = "fails" if len(bad) == 1 else "fail"
    return [
        Cause(
            code=Code.FAILING,
            level=Level.DEGRADED,
            message=f"{_named(bad)} {verb}: {failed:,} of {made:,} attempts in "
            f"{span(now.window_s)}{mostly}",
            next_step="Look at the errors; pause the type while its cause is mended.",
            command=command(f"failures --type {shlex.quote(bad[0].type)}", now.namespace),
            types=_names(bad),
            evidence={"failed": failed, "attempts": made, "code": bad[0].code},
        )
    ]


def _fails(one: TypeNow) -> bool:
    made = one.attempts_failed + one.completed
    return one.attempts_failed >= max(FEW_FAILURES, FAILING_SHARE * made)


def _silent(now: Situation) -> list[Cause]:
    silent = [one for one in now.workers if not one.is_there]
    if not silent:
        return []
    names = sorted({one.name for one in silent})
    most = max(one.silent_s for one in silent)
    has = "worker has" if len(silent) == 1 else "workers have"
    return [
        Cause(
            code=Code.SILENT_WORKERS,
            level=Level.DEGRADED,
            message=f"{len(silent):,} {has} been silent for {span(most)}: {listed(names)}",
            next_step="See whether their pods live, and reach the operator.",
            command=f"kubectl -n {shlex.quote(now.namespace)} get pods",
            evidence={"workers": len(silent), "silent_s": round(most, 1)},
        )
    ]


def _lost(now: Situation) -> list[Cause]:
    """Of those lost within the window something may still be amiss; the others are remembered."""
    if not now.lost:
        return []
    newest = min(now.lost, key=lambda one: one.ago_s)
    jobs = sum(one.jobs for one in now.lost)
    several = len(now.lost) > 1
    names = listed(sorted({one.name for one in now.lost}))
    who = f"{len(now.lost):,} workers ({names})" if several else f"worker {names}"
    ago = f"{span(newest.ago_s)} ago"
    when = f"died, the last {ago}," if several else f"died {ago}"
    told = f"; {'it was' if jobs == 1 else 'they were'} taken back to be run again"
    return [
        Cause(
            code=Code.LOST_WORKERS,
            level=Level.DEGRADED if newest.ago_s < now.window_s else Level.HEALTHY,
            message=f"{who} {when} with {many(jobs, 'job') if jobs else 'no job'}"
            f"{told if jobs else ''}",
            next_step="See why it ended: out of memory, evicted, or a node that went? A job that "
            "ends its workers is run apart and then given up.",
            command=f"kubectl -n {shlex.quote(now.namespace)} describe pod "
            f"{shlex.quote(newest.name)}",
            evidence={"workers": len(now.lost), "jobs": jobs, "ago_s": round(newest.ago_s, 1)},
        )
    ]


def _crowded(now: Situation, crew: _Crew, hindered: frozenset[str]) -> list[Cause]:
    """Jobs wait, and nothing but a lack of slots, or a quota, keeps them."""
    left = [one for one in now.types if one.due and one.type not in hindered]
    if not now.may_run and left:
        return [_over_quota(left, now)]
    full = [one for one in left if _is_short(one, crew[one.type])]
    if not full:
        return []
    kinds = {one.type for one in full}
    slots = [worker for worker in now.workers if worker.is_there and not worker.draining]
    able = [one for one in slots if not one.types or not one.types.isdisjoint(kinds)]
    count = sum(one.capacity for one in able)
    where = "" if len(full) == len(left) else f" for {_named(full)}"
    verb, of = "is" if count == 1 else "are", many(len(able), "worker")
    taken = f"all {many(count, 'slot')} of {of}{where} {verb} taken"
    if any(crew[one.type].free for one in full):
        taken = f"there {verb} {many(count, 'slot')} of {of}{where}"
    elif count == 1:
        taken = f"the one slot there is{where} is taken"
    return [
        Cause(
            code=Code.ALL_BUSY,
            level=_how_late(full),
            message=f"{taken}, and {_waiting(full)}",
            next_step="Wait, start more workers, or give them more slots.",
            command=command("top", now.namespace),
            types=_names(full),
            evidence={**_counted(full), "slots": count, "workers": len(able)},
        )
    ]


def _is_short(one: TypeNow, takers: _Takers) -> bool:
    """Every slot is taken; or one is free for the moment between two jobs, and more wait than there
    are slots.
    """
    if not takers.taking or one.oldest_s < 1.0:
        return False
    flows = one.completed > 0 and GRACE_S <= one.oldest_s < LATE_S
    return not takers.free or (flows and one.due > takers.slots)


def _over_quota(left: Sequence[TypeNow], now: Situation) -> Cause:
    return Cause(
        code=Code.QUOTA,
        level=_how_late(left),
        message=f"the namespace runs as many jobs as its quota allows, and {_waiting(left)}",
        next_step="Wait, or have the quota of running jobs raised.",
        evidence={**_counted(left), "running": now.running},
    )


def _how_late(types: Sequence[TypeNow]) -> Level:
    return Level.DEGRADED if _oldest(types) >= LATE_S else Level.BUSY


# Words


def _waiting(types: Sequence[TypeNow]) -> str:
    due, oldest_s = sum(one.due for one in types), _oldest(types)
    waits = f"{many(due, 'job')} wait{'s' if due == 1 else ''}"
    if oldest_s < 1:
        return waits
    return f"{waits}, {'' if due == 1 else 'the oldest '}for {span(oldest_s)}"


def _oldest(types: Sequence[TypeNow]) -> float:
    return max((one.oldest_s for one in types), default=0.0)


def _counted(types: Sequence[TypeNow]) -> dict[str, int | float | str]:
    due = sum(one.due for one in types)
    return {"waiting": due, "oldest_s": round(_oldest(types), 1), "types": len(types)}


def _names(types: Sequence[TypeNow]) -> tuple[str, ...]:
    return tuple(one.type for one in types[:_MOST_NAMED])


def _named(types: Sequence[TypeNow]) -> str:
    return listed([one.type for one in types])


def _resume(kind: str, now: Situation) -> str:
    if kind.startswith("-"):
        # Before the dashes it would be an option, such as --all.
        return f"{command('resume', now.namespace)} -- {shlex.quote(kind)}"
    return command(f"resume {shlex.quote(kind)}" if kind else "resume", now.namespace)
