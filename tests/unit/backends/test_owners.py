"""Whose tokens are known, and when the store is asked."""

from collections.abc import Mapping
from datetime import UTC, datetime

from queue_operator.backends import owners
from queue_operator.backends.owners import Owners
from queue_operator.domain.job import Assignment
from queue_operator.domain.lease import Held


class Asked:
    """A store in which each token is worker-1's, but for those of nobody."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    async def __call__(self, named: Mapping[str, tuple[str, str]]) -> Mapping[str, str]:
        self.tokens += named
        assert set(named.values()) <= {("default", "job")}
        return {token: "worker-1" for token in named if token != "nobody's"}


def _assignment(token: str) -> Assignment:
    tags, at = frozenset[str](), datetime(2026, 1, 1, tzinfo=UTC)
    return Assignment("job", "default", "t", b"", "", tags, 1, token, "worker-1", at)


def _held(token: str, assignee_id: str | None = "worker-1") -> Held:
    return Held("job", token, assignee_id=assignee_id)


async def test_the_store_is_asked_once_and_only_for_what_is_not_known() -> None:
    asked = Asked()
    known = Owners(asked)
    known.remember([_assignment("a")])
    said = [_held("a"), _held("b"), _held("c", None), _held("")]
    assert await known.heard(said) is said
    assert await known.heard(said) is said
    assert asked.tokens == ["b"]


async def test_what_is_said_by_others_loses_its_token_and_nothing_else() -> None:
    known = Owners(Asked())
    said = [_held("a"), _held("a", "worker-2"), _held("a", None), _held("nobody's", "worker-2")]
    heard = await known.heard(said)
    assert heard == [said[0], _held("", "worker-2"), said[2], said[3]]


async def test_the_newest_tokens_are_remembered_and_their_number_is_bounded() -> None:
    asked = Asked()
    known = Owners(asked)
    for n in range(3 * owners._REMEMBERED):
        known.remember([_assignment(str(n))])
    newest = [_held(str(3 * owners._REMEMBERED - 1 - n)) for n in range(owners._REMEMBERED)]
    await known.heard(newest)
    assert asked.tokens == []
    await known.heard([_held("0")])
    assert asked.tokens == ["0"]
