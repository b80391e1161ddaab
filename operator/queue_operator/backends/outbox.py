"""Webhooks of stores that keep jobs on a shelf: the outbox stands beside it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from queue_operator.backends.atomic import atomic, reading
from queue_operator.backends.chances import Entropy, tokens
from queue_operator.backends.webhook_ids import Named, id_of
from queue_operator.backends.webhooks import (
    Message,
    MessageSearch,
    MessageState,
    MessageStock,
    Told,
)
from queue_operator.backends.webhooks_base import (
    MOST_LOOKED_AT,
    Chosen,
    Standing,
    WebhooksBase,
    is_try,
)
from queue_operator.domain.job import Job
from queue_operator.domain.situation import LATE_S
from queue_operator.domain.validation import Limits

_T = TypeVar("_T")


class Post(NamedTuple):
    """A message where it is kept; `is_held` says that somebody tells it, or died over it."""

    number: int
    message: Message
    is_held: bool = False


class Outbox(Protocol):
    """Messages, by their numbers."""

    def add(self, message: Callable[[int], Message]) -> None:
        """Keeps what is made with the next number."""
        ...

    def find(self, number: int) -> Post | None: ...

    def keep(self, post: Post) -> None:
        """In the place of the one with this number."""
        ...

    def remove(self, number: int) -> None: ...

    def due(self, now: datetime, per_receiver: int) -> list[Post]:
        """Those that may be told, of each receiver the first, in order of their numbers."""
        ...

    def listed(
        self, search: MessageSearch, states: Sequence[MessageState], before: int, limit: int
    ) -> list[Post]:
        """Of a namespace, and a job where one is named; the highest numbers first."""
        ...

    def oldest(self, namespace: str, states: Sequence[MessageState], limit: int) -> list[Post]:
        """By number."""
        ...

    def ended(self, state: MessageState, until: datetime, limit: int) -> list[Post]:
        """Those whose last try was until then, the oldest first."""
        ...

    def counts(self) -> Mapping[tuple[str, MessageState], int]: ...

    def due_since(self) -> datetime | None:
        """When the first of those that wait was, or is, due."""
        ...


def told_of(job: Job, entropy: Entropy, now: datetime) -> Callable[[int], Message]:
    """The message about a job that ends now, once its number is known."""
    [salt] = tokens(entropy, 1)

    def message(number: int) -> Message:
        return Message(
            id=id_of(number, UUID(salt)),
            namespace=job.namespace,
            job_id=job.id,
            type=job.type,
            url=job.callback_url,
            job_state=job.state,
            finalized_at=job.finalized_at or now,
            attempt=job.attempt,
            next_at=now,
            created_at=now,
        )

    return message


class Beside(Protocol):
    """A shelf of jobs with the outbox beside it."""

    @property
    def outbox(self) -> Outbox: ...


class Owner(Protocol):
    """The backend that has the shelf: it is alone with it in each call."""

    @property
    def _shelf(self) -> Beside: ...

    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T: ...


class ShelfWebhooks(WebhooksBase):
    """The protocol `Webhooks` on an outbox."""

    def __init__(self, owner: Owner, limits: Limits, clock: Callable[[], datetime]) -> None:
        self._owner = owner
        self._limits = limits
        self._clock = clock
        self._now = clock()
        self._last = ""

    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T:
        return await self._owner._alone(work, reads=reads)

    async def _alone_or_undone(self, work: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
        return await self._alone(work)

    def _at_once(self, method: Callable[[], _T]) -> Callable[[], _T]:
        def work() -> _T:
            self._now = self._clock()
            return method()

        return work

    @property
    def _box(self) -> Outbox:
        return self._owner._shelf.outbox

    @atomic
    def _claim(
        self, holder: str, limit: int, per_receiver: int, lease_s: float, full: frozenset[str]
    ) -> list[Message]:
        turns: dict[str, list[Post]] = {}
        for post in self._box.due(self._now, per_receiver):
            if post.message.receiver not in full:
                turns.setdefault(post.message.receiver, []).append(post)
        # Whoever had the last turn is the last this time.
        order = sorted(turns, key=lambda receiver: (receiver <= self._last, receiver))
        rounds = [
            turns[receiver][place]
            for place in range(per_receiver)
            for receiver in order
            if place < len(turns[receiver])
        ]
        taken = rounds[:limit]
        if taken:
            served = {post.message.receiver for post in taken}
            self._last = [receiver for receiver in order if receiver in served][-1]
        until = self._now + timedelta(seconds=lease_s)
        held = [self._held(post, until) for post in taken]
        return [post.message for post in sorted(held, key=lambda post: post.number)]

    def _held(self, post: Post, until: datetime) -> Post:
        message = replace(post.message, claim=post.message.claim + 1, next_at=until)
        held = post._replace(message=message, is_held=True)
        self._box.keep(held)
        return held

    @atomic
    def _settle(self, told: Mapping[Named, Told]) -> None:
        for name, one in told.items():
            post = self._find(name)
            if post is None or not post.is_held or post.message.claim != one.claim:
                continue
            message = replace(post.message, state=one.state, next_at=self._next_at(one))
            if is_try(one):
                message = replace(
                    message,
                    tries=message.tries + 1,
                    last_at=self._now,
                    last_status=one.status,
                    last_error=one.error,
                )
            self._box.keep(post._replace(message=message, is_held=False))

    def _next_at(self, told: Told) -> datetime | None:
        if told.state is not MessageState.PENDING:
            return None
        return self._now + timedelta(seconds=told.after_s)

    def _find(self, name: Named) -> Post | None:
        post = self._box.find(name.number)
        return post if post is not None and post.message.id == id_of(*name) else None

    @reading
    def _get(self, name: Named, namespace: str) -> Message | None:
        post = self._find(name)
        return post.message if post and post.message.namespace == namespace else None

    @reading
    def _search(
        self, search: MessageSearch, states: Sequence[MessageState], before: int, limit: int
    ) -> Sequence[Message]:
        return [post.message for post in self._box.listed(search, states, before, limit)]

    @atomic
    def _redeliver(self, namespace: str, chosen: Chosen, limit: int) -> int:
        found = self._choose(namespace, chosen, limit)
        for post in found:
            message = replace(
                post.message,
                state=MessageState.PENDING,
                next_at=self._now,
                tries=0,
                last_at=None,
                last_status=None,
                last_error="",
            )
            self._box.keep(Post(post.number, message))
        return len(found)

    @atomic
    def _purge(self, namespace: str, chosen: Chosen, limit: int) -> int:
        return self._remove(self._choose(namespace, chosen, limit))

    @reading
    def _count(self, namespace: str, chosen: Chosen, limit: int) -> int:
        return len(self._choose(namespace, chosen, limit))

    def _choose(self, namespace: str, chosen: Chosen, limit: int) -> list[Post]:
        states, names = chosen
        if names is None:
            return self._box.oldest(namespace, states, limit)
        found = [post for name in names if (post := self._find(name)) is not None]
        mine = [one for one in found if one.message.namespace == namespace]
        return [one for one in mine if one.message.state in states][:limit]

    def _remove(self, posts: Sequence[Post]) -> int:
        for post in posts:
            self._box.remove(post.number)
        return len(posts)

    @reading
    def _standing(self, namespace: str, type: str) -> Sequence[Standing]:
        asked = MessageSearch(namespace=namespace)
        everything = self._box.listed(asked, [MessageState.FAILED], 2**63 - 1, MOST_LOOKED_AT)
        everything += self._box.oldest(namespace, [MessageState.PENDING], MOST_LOOKED_AT)
        by: dict[str, list[Message]] = {}
        for message in (post.message for post in everything):
            if type in ("", message.type):
                by.setdefault(message.receiver, []).append(message)
        return [_standing_of(mine, self._now) for mine in by.values()]

    @reading
    def _stock(self) -> MessageStock:
        counts, since = self._box.counts(), self._box.due_since()
        of: dict[MessageState, Counter[str]] = {state: Counter() for state in MessageState}
        for (namespace, state), count in counts.items():
            of[state][namespace] = count
        oldest_s = 0.0 if since is None else max((self._now - since).total_seconds(), 0.0)
        return MessageStock(
            pending=of[MessageState.PENDING],
            failed=of[MessageState.FAILED],
            oldest_due_s=oldest_s,
        )

    @atomic
    def _prune(self, delivered_s: float, failed_s: float, limit: int) -> int:
        kept = {MessageState.DELIVERED: delivered_s, MessageState.FAILED: failed_s}
        old = [
            post
            for state, kept_s in kept.items()
            for post in self._box.ended(state, self._now - timedelta(seconds=kept_s), limit)
        ]
        return self._remove(old)


def _standing_of(mine: Sequence[Message], now: datetime) -> Standing:
    """Of messages to one receiver."""
    pending = [one for one in mine if one.state is MessageState.PENDING]
    given_up = [one for one in mine if one.state is MessageState.FAILED]
    retrying = [one for one in pending if one.tries]
    bad = max([*retrying, *given_up], key=lambda one: one.last_error, default=None)
    ages = [(now - one.next_at).total_seconds() for one in pending if one.next_at is not None]
    since = now - timedelta(seconds=LATE_S)
    return Standing(
        pending=len(pending),
        retrying=len(retrying),
        oldest_due_s=max([0.0, *ages]),
        given_up=len(given_up),
        given_up_lately=sum(one.last_at is not None and one.last_at > since for one in given_up),
        url="" if bad is None else bad.url,
        error="" if bad is None else bad.last_error,
    )
