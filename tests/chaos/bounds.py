"""How long a dead worker's jobs may wait, given what else struck meanwhile."""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.chaos.plan import API, WORKER_ONLY, Fault
from tests.chaos.troupe import OPERATORS, TTL_S

from queue_operator.testing.history import History, Kind, Record, Takeover, takeovers

SLACK_S: Final = 2.0
# What the API server does is none of the queue's concern.
_NO_EXCUSE: Final = {fault.name for fault in (*WORKER_ONLY, *API)}
# Until an operator has given up a statement, and has a connection again.
_OUT_S: Final = {Fault.HALF_OPEN_STORE.name: 4.0, Fault.CUT_STORE.name: 1.0}
_OUT: Final = {Fault.KILL_OPERATOR.name, Fault.FREEZE_OPERATOR.name, *_OUT_S}
Span = tuple[float, float]


def late(history: History) -> list[str]:
    """Jobs of killed workers that ran elsewhere too late. Nobody can run any while no operator
    reaches Postgres: such a time is not counted.
    """
    others = [_span(one) for one in history.of(Kind.FAULT) if one.said["fault"] not in _NO_EXCUSE]
    outages = list(outages_of(history))
    return [text for one in takeovers(history) if (text := judge(one, others, outages))]


def _span(record: Record) -> Span:
    since, until = float(str(record.said["since"])), float(str(record.said["until"]))
    return since, until + _OUT_S.get(str(record.said["fault"]), 0.0)


def outages_of(history: History) -> Iterator[Span]:
    """When Postgres was down, and when all operators were cut off from it at once."""
    out: list[list[Span]] = [[] for _ in range(OPERATORS)]
    for record in history.of(Kind.FAULT):
        if record.said["fault"] == Fault.RESTART_POSTGRES.name:
            yield _span(record)
        elif record.said["fault"] in _OUT:
            out[int(str(record.said["target"])) % OPERATORS].append(_span(record))
    first, *rest = out
    for span in first:
        yield from _common(span, rest)


def _common(span: Span, rest: Sequence[Sequence[Span]]) -> Iterator[Span]:
    if not rest:
        yield span
        return
    for since, until in rest[0]:
        both = max(since, span[0]), min(until, span[1])
        if both[0] < both[1]:
            yield from _common(both, rest[1:])


def judge(one: Takeover, others: Sequence[Span], outages: Sequence[Span]) -> str:
    """What is wrong with it; "" if it came in time. `others`: when something else than a worker
    was struck; `outages`: when nobody could run anything. A job that ended instead, cancelled or
    without an attempt left, did so as soon as another would have run.
    """
    over_at = one.left_at if one.again_at is None else one.again_at
    if one.is_missing or over_at is None:
        return f"job {one.job_id} of {one.process} never ran elsewhere, and it has not ended"
    struck = any(s < over_at and u > one.killed_at - TTL_S for s, u in (*others, *outages))
    bound_s = TTL_S * (2 if struck else 1) + SLACK_S
    from_s = one.killed_at
    while later := [u for s, u in outages if s < from_s + bound_s and u > from_s]:
        from_s = max(later)
    if over_at - from_s <= bound_s:
        return ""
    how = "ended" if one.again_at is None else "ran elsewhere"
    return (
        f"job {one.job_id} of {one.process} {how} {over_at - one.killed_at:.2f} s after the kill; "
        f"allowed were {from_s - one.killed_at + bound_s:.2f} s"
    )
