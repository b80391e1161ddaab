"""Tokens count only in the hands they were given to.

A token is given out once and to one assignee, so who that is never changes and may be looked up
beside the statement that uses the token.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar, cast

from queue_operator.backends.protocol import ProgressReport
from queue_operator.domain.job import Assignment
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.running import (
    CheckpointReport,
    LogReport,
    SpawnRequest,
)

Said = Outcome | Held | CheckpointReport | SpawnRequest | ProgressReport | LogReport
"""What names a token. With an `assignee_id` it is that one's word, without it is nobody's."""
Find = Callable[[Mapping[str, tuple[str, str]]], Awaitable[Mapping[str, str]]]
"""Gives the assignees of tokens, by token; given the namespace and id of the job that each is said
to be for. Tokens that no job has, or had, are left out.
"""

S = TypeVar("S", bound=Said)

NO_TOKEN: Final = ""
_REMEMBERED: Final = 50_000


class Owners:
    """Knows whose the newest tokens of this process are, and asks the store for others."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._known: dict[str, str] = {}
        self._before: dict[str, str] = {}

    def remember(self, claimed: Iterable[Assignment]) -> None:
        """They were just given out."""
        self._know({one.token: one.assignee_id for one in claimed})

    def _know(self, found: Mapping[str, str]) -> None:
        if len(self._known) >= _REMEMBERED:
            self._before, self._known = self._known, {}
        self._known.update(found)

    def _owner(self, token: str) -> str | None:
        return self._known.get(token) or self._before.get(token)

    async def heard(self, said: Sequence[S]) -> Sequence[S]:
        """The same, but that a token in other hands than those it was given to is none at all.

        Raises Unavailable.
        """
        named = [one for one in said if one.assignee_id is not None and one.token]
        new = {one.token: _job_of(one) for one in named if self._owner(one.token or "") is None}
        if new:
            self._know(await self._find(cast(Mapping[str, tuple[str, str]], new)))
        if all(self._owner(one.token or "") in (None, one.assignee_id) for one in named):
            return said
        return [
            one
            if one.assignee_id is None or self._owner(one.token or "") in (None, one.assignee_id)
            else with_token(one, NO_TOKEN)
            for one in said
        ]


def _job_of(one: Said) -> tuple[str, str]:
    return one.namespace, one.parent_id if isinstance(one, SpawnRequest) else one.job_id


def with_token(one: S, token: str) -> S:
    if isinstance(one, Outcome):
        return cast(S, one._replace(token=token))
    return replace(one, token=token)


def said_by(assignee_id: str, said: Sequence[S]) -> list[S]:
    """The same as the word of that assignee."""
    return [
        cast(S, one._replace(assignee_id=assignee_id))
        if isinstance(one, Outcome)
        else replace(one, assignee_id=assignee_id)
        for one in said
    ]
