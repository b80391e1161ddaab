"""The fast path of an outcome: running jobs that are done, in one statement.

A token begins with the number of its job, so the lease is found without looking for the id.
Whether a token belongs to the id it came with is known for the claims of this process; what
another process claimed takes the slow path, which asks the database.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, Final

from queue_operator.backends.postgres.arrays import Int8s, Texts, Uuids
from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.rows import HEARD
from queue_operator.backends.sql import load
from queue_operator.domain.job import Assignment
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import Event, JobState

_COMPLETE: Final = load(__package__, "complete", heard=HEARD)
_REMEMBERED: Final = 100_000
_NO_RESULT: Final = -1


class Claimed:
    """Which job each token is for, of the newest claims of this process."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[str, str]] = {}

    def remember(self, assignments: Sequence[Assignment]) -> None:
        jobs = self._jobs
        for one in assignments:
            jobs[one.token] = one.namespace, one.job_id
        for oldest in list(islice(jobs, max(len(jobs) - _REMEMBERED, 0))):
            del jobs[oldest]

    def are_for(self, outcome: Outcome) -> bool:
        """True when the token of `outcome` was given out here, for that very job."""
        known = self._jobs.get(outcome.token or "")
        return known == (outcome.namespace, outcome.job_id)

    def forget(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._jobs.pop(outcome.token or "", None)


class Completions:
    """Completes running jobs. Those it does not answer for take the slow path."""

    def __init__(self, pool: Pool, claimed: Claimed) -> None:
        self._pool = pool
        self._claimed = claimed

    async def complete(self, batch: Mapping[int, Outcome]) -> dict[int, Settled]:
        """The answers to those that were completed, by their key in `batch`."""
        places: dict[int, int] = {}
        for place, outcome in batch.items():
            if outcome.event is Event.COMPLETE and self._claimed.are_for(outcome):
                places[_job_no(outcome)] = place
        if not places:
            return {}
        numbers = sorted(places)
        outcomes = [batch[places[number]] for number in numbers]
        rows = await self._complete(_parameters(numbers, outcomes))
        self._claimed.forget(outcomes)
        return {
            places[number]: Settled(
                batch[places[number]].job_id,
                batch[places[number]].namespace,
                JobState.COMPLETED,
                None,
                assignee_id,
            )
            for number, assignee_id in rows
        }

    def forget(self, outcomes: Iterable[Outcome]) -> None:
        """Their jobs came to another end than here."""
        self._claimed.forget(outcomes)

    @again_when_undone
    async def _complete(self, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_COMPLETE, parameters, binary=True)
            return await cursor.fetchall()


def _job_no(outcome: Outcome) -> int:
    """The first eight bytes of the token, which is one of our own making."""
    return int((outcome.token or "").replace("-", "")[:16], 16)


def _parameters(numbers: list[int], outcomes: list[Outcome]) -> dict[str, Any]:
    """Results go as one run of bytes with the place of each: indexing an array of bytea walks
    it from its start each time.
    """
    results = [outcome.result for outcome in outcomes]
    lengths = [_NO_RESULT if result is None else len(result) for result in results]
    ends = list(accumulate(max(length, 0) for length in lengths))
    kinds = {kind: n for n, kind in enumerate({o.result_content_type: 0 for o in outcomes}, 1)}
    return {
        "job_nos": Int8s(numbers),
        "tokens": Uuids(bytes.fromhex((o.token or "").replace("-", "")) for o in outcomes),
        "results": b"".join(result for result in results if result),
        "starts": Int8s(end - max(n, 0) + 1 for end, n in zip(ends, lengths, strict=True)),
        "lengths": Int8s(lengths),
        "content_types": Texts(kinds),
        "kinds": Int8s(kinds[outcome.result_content_type] for outcome in outcomes),
    }
