"""Checkpoints: one row per job that has not ended, fenced by the token of its lease."""

from collections.abc import Mapping, Sequence
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.plane_base import refused
from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.rows import storable_token
from queue_operator.backends.sql import load
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.running import CheckpointAnswer, CheckpointReport
from queue_operator.domain.states import JobState

_STORE: Final = load(__package__, "checkpoint_store")
_LOOKS: Final = 2
"""A job that was lost while we waited for its row is found with the second look."""

_Name = tuple[str, str, str]


class CheckpointStore:
    """The protocol `Checkpoints`; the arguments are checked."""

    def __init__(self, pool: Pool, lanes: Lanes) -> None:
        self._pool = pool
        self._lanes = lanes

    async def store(self, reports: Sequence[CheckpointReport]) -> list[CheckpointAnswer]:
        newest: dict[_Name, CheckpointReport] = {}
        for report in sorted(reports, key=lambda report: report.number):
            newest[_name(report)] = report
        taken: dict[_Name, tuple[str, bool]] = {}
        # Of one job there may be reports under two tokens, of which one is stale.
        for group in _one_per_job(newest):
            for _ in range(_LOOKS):
                left = [report for name, report in group.items() if name not in taken]
                if left:
                    taken |= await self._store(left)
        return [_answer(report, taken.get(_name(report))) for report in reports]

    @again_when_undone
    async def _store(self, reports: Sequence[CheckpointReport]) -> dict[_Name, tuple[str, bool]]:
        parameters = {
            "namespaces": await self._lanes.namespace_ids([one.namespace for one in reports]),
            "ids": [one.job_id for one in reports],
            "tokens": [storable_token(one.token) for one in reports],
            "numbers": [one.number for one in reports],
            "checkpoints": [one.data for one in reports],
        }
        async with borrowed(self._pool) as connection:
            rows = await _fetch(connection, parameters)
        return {_name(reports[place - 1]): (state, forced) for place, state, forced in rows}


async def _fetch(
    connection: AsyncConnection[TupleRow], parameters: Mapping[str, object]
) -> list[TupleRow]:
    return await (await connection.execute(_STORE, parameters)).fetchall()


def _name(report: CheckpointReport) -> _Name:
    return report.namespace, report.job_id, report.token


def _one_per_job(
    newest: Mapping[_Name, CheckpointReport],
) -> list[dict[_Name, CheckpointReport]]:
    groups: list[dict[_Name, CheckpointReport]] = []
    turns: dict[tuple[str, str], int] = {}
    for name, report in newest.items():
        turn = turns.get(name[:2], 0)
        turns[name[:2]] = turn + 1
        if turn == len(groups):
            groups.append({})
        groups[turn][name] = report
    return groups


def _answer(report: CheckpointReport, held: tuple[str, bool] | None) -> CheckpointAnswer:
    if held is None:
        return refused(report, StaleLease(report.job_id))
    state, forced = held
    cancelling = state == JobState.CANCELLING
    return CheckpointAnswer(
        job_id=report.job_id,
        namespace=report.namespace,
        cancel_requested=cancelling,
        cancel_forced=cancelling and forced,
    )
