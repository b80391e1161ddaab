"""How a queue does, in one sentence: a level, what causes it, and what to do next. Pure.

Everybody who asks is told the same: the page, `queue-operator top` and `why`, and whoever reads
`GET /v1/verdict`.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

GRACE_S: Final = 15.0
"""A worker that starts again is away for so long; jobs that wait for less are told of by nobody. A
worker that has been silent for longer takes no job.
"""
LATE_S: Final = 300.0
"""A queue is late when a job that could run has waited for longer."""
IDLE_S: Final = 60.0
"""So long a job may wait although a worker that handles its type has a free slot."""
FEW_FAILURES: Final = 5
FAILING_SHARE: Final = 0.2
"""A type fails when so many attempts did within the window, and so great a part of all."""
_MOST_NAMED: Final = 10
_MOST_CHARACTERS: Final = 80


class Level(StrEnum):
    """HEALTHY: all that could run does, or soon will. BUSY: it waits for slots. DEGRADED: a part
    of it fails, is late, or cannot start. STUCK: nothing of what waits can start.
    """

    HEALTHY = "HEALTHY"
    BUSY = "BUSY"
    DEGRADED = "DEGRADED"
    STUCK = "STUCK"


_ORDER: Final = tuple(Level)


class Code(StrEnum):
    """What a cause is."""

    PAUSED = "PAUSED"
    NO_WORKER = "NO_WORKER"
    DRAINING = "DRAINING"
    NOT_TAKEN = "NOT_TAKEN"
    LATE = "LATE"
    FAILING = "FAILING"
    SILENT_WORKERS = "SILENT_WORKERS"
    LOST_WORKERS = "LOST_WORKERS"
    QUOTA = "QUOTA"
    ALL_BUSY = "ALL_BUSY"


_KEEPS_ALL: Final = (Code.PAUSED, Code.NO_WORKER, Code.DRAINING)
"""No job of the type starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeNow:
    """One type of jobs: `due` could run now, `oldest_s` is how long the oldest of them has waited.
    `completed` and `attempts_failed` are of the window; `code` is the most frequent of its errors.
    """

    type: str
    due: int = 0
    running: int = 0
    completed: int = 0
    attempts_failed: int = 0
    oldest_s: float = 0.0
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNow:
    """A connected worker. No `types`: it handles any. `silent_s`: nobody heard of it so long."""

    name: str
    types: frozenset[str] = frozenset()
    capacity: int = 1
    busy: int = 0
    draining: bool = False
    silent_s: float = 0.0

    @property
    def is_there(self) -> bool:
        return self.silent_s <= GRACE_S

    @property
    def free(self) -> int:
        return max(self.capacity - self.busy, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNow:
    """A worker that went `ago_s` before now without a goodbye, and the jobs it had then."""

    name: str
    ago_s: float
    jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A pause; of all types where `type` is empty."""

    type: str = ""
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A namespace, or one type in it, as it is now and was for `window_s`. `later` jobs wait for a
    time, for other jobs, or to be resumed. `may_run`: the quota has room for one more.
    """

    namespace: str
    window_s: float = LATE_S
    types: tuple[TypeNow, ...] = ()
    workers: tuple[WorkerNow, ...] = ()
    lost: tuple[LostNow, ...] = ()
    holds: tuple[Hold, ...] = ()
    later: int = 0
    may_run: bool = True

    @property
    def due(self) -> int:
        return sum(one.due for one in self.types)

    @property
    def running(self) -> int:
        return sum(one.running for one in self.types)

    @property
    def slots(self) -> int:
        """Of workers that are there."""
        return sum(one.capacity for one in self.workers if one.is_there)

    @property
    def busy(self) -> int:
        """Of these slots, those that are taken."""
        return sum(min(one.busy, one.capacity) for one in self.workers if one.is_there)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that keeps jobs back. `types` are the first of those it is about, empty for all;
    `evidence` is what was counted, `command` what to type next, empty where no command helps.
    """

    code: Code
    level: Level
    message: str
    next_step: str
    command: str = ""
    types: tuple[str, ...] = ()
    evidence: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`causes` are sorted, the worst first; the sentence tells the first."""

    level: Level
    sentence: str
    causes: tuple[Cause, ...] = ()


def judge(now: Situation) -> Verdict:
    """The verdict on a situation."""
    crew = _crew(now)
    held, hindered = _hindrances(now, crew)
    causes = [*held, *_failing(now), *_lost(now), *_silent(now), *_crowded(now, crew, hindered)]
    causes.sort(key=lambda cause: -_ORDER.index(cause.level))
    level = max((cause.level for cause in causes), key=_ORDER.index, default=Level.HEALTHY)
    if now.due and sum(one.due for one in now.types if one.type in hindered) == now.due:
        level = Level.STUCK
        causes.sort(key=lambda cause: cause.code not in _KEEPS_ALL)
    return Verdict(level=level, sentence=_sentence(level, causes, now), causes=tuple(causes))


def _sentence(level: Level, causes: Sequence[Cause], now: Situation) -> str:
    word = level.value.capitalize()
    if level is Level.HEALTHY:
        return f"{word}: {_quiet(now)}."
    more = sum(cause.level is not Level.HEALTHY for cause in causes) - 1
    others = f" (and {_many(more, 'other cause')})" if more else ""
    return f"{word}: {causes[0].message}{others}."


def _quiet(now: Situation) -> str:
    later = f"; {_many(now.later, 'job')} may not start yet" if now.later else ""
    if not now.due and not now.running:
        return f"nothing runs, and nothing could{later}"
    done = sum(one.completed for one in now.types)
    told = f"{_many(now.running, 'job')} running, {now.due:,} about to start, "
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
    by = f" by {_text(hold.by)}" if hold.by else ""
    because = f" ({_text(hold.reason)})" if hold.reason else ""
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
        command=_command(f"list --type {shlex.quote(types[0].type)} --state SCHEDULED", now),
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
        command=_command(f"list --type {shlex.quote(types[0].type)} --state SCHEDULED", now),
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
            message=f"{_text(hold.type) or 'the namespace'} is paused, and nothing waits for it",
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
    mostly = f", mostly {_text(bad[0].code)}" if bad[0].code else ""
    verb = "fails" if len(bad) == 1 else "fail"
    return [
        Cause(
            code=Code.FAILING,
            level=Level.DEGRADED,
            message=f"{_named(bad)} {verb}: {failed:,} of {made:,} attempts in "
            f"{span(now.window_s)}{mostly}",
            next_step="Look at the errors; pause the type while its cause is mended.",
            command=_command(f"failures --type {shlex.quote(bad[0].type)}", now),
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
            message=f"{len(silent):,} {has} been silent for {span(most)}: {_list(names)}",
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
    many = len(now.lost) > 1
    names = _list(sorted({one.name for one in now.lost}))
    who = f"{len(now.lost):,} workers ({names})" if many else f"worker {names}"
    ago = f"{span(newest.ago_s)} ago"
    when = f"died, the last {ago}," if many else f"died {ago}"
    told = f"; {'it was' if jobs == 1 else 'they were'} taken back to be run again"
    return [
        Cause(
            code=Code.LOST_WORKERS,
            level=Level.DEGRADED if newest.ago_s < now.window_s else Level.HEALTHY,
            message=f"{who} {when} with {_many(jobs, 'job') if jobs else 'no job'}"
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
    verb, of = "is" if count == 1 else "are", _many(len(able), "worker")
    taken = f"all {_many(count, 'slot')} of {of}{where} {verb} taken"
    if any(crew[one.type].free for one in full):
        taken = f"there {verb} {_many(count, 'slot')} of {of}{where}"
    elif count == 1:
        taken = f"the one slot there is{where} is taken"
    return [
        Cause(
            code=Code.ALL_BUSY,
            level=_how_late(full),
            message=f"{taken}, and {_waiting(full)}",
            next_step="Wait, start more workers, or give them more slots.",
            command=_command("top", now),
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


def span(seconds: float) -> str:
    """`40 s`, `5 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = max(round(seconds), 0)
    for size, unit, less, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {unit} {rest} {small}" if rest else f"{whole // size} {unit}"
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _waiting(types: Sequence[TypeNow]) -> str:
    due, oldest_s = sum(one.due for one in types), _oldest(types)
    waits = f"{_many(due, 'job')} wait{'s' if due == 1 else ''}"
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
    return _list([one.type for one in types])


def _list(names: Sequence[str]) -> str:
    """The first, and how many others."""
    if len(names) <= 2:
        return " and ".join(map(_text, names))
    return f"{_text(names[0])} and {len(names) - 1:,} others"


def _text(name: str) -> str:
    """A name that somebody chose, so that it stays within its sentence."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}…"


def _resume(kind: str, now: Situation) -> str:
    if kind.startswith("-"):
        # Before the dashes it would be an option, such as --all.
        return f"{_command('resume', now)} -- {shlex.quote(kind)}"
    return _command(f"resume {shlex.quote(kind)}" if kind else "resume", now)


def _command(words: str, now: Situation) -> str:
    return f"queue-operator {words} --namespace {shlex.quote(now.namespace)}"
