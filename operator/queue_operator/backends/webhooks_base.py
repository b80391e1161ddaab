"""The arguments of the calls in `backends.webhooks`, checked alike for every store."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from queue_operator.backends.paging import decode_place, encode_place
from queue_operator.backends.webhook_ids import Named, named
from queue_operator.backends.webhooks import (
    Message,
    MessagePage,
    MessageSearch,
    MessageState,
    MessageStock,
    Told,
    receiver_of,
)
from queue_operator.domain.errors import InvalidArgument, MessageNotFound
from queue_operator.domain.situation import MessagesNow
from queue_operator.domain.storable import without_unstorable
from queue_operator.domain.validation import (
    NAME_CHARACTERS,
    REASON_CHARACTERS,
    Limits,
    check_choice,
    check_count,
    check_duration,
    check_flag,
    check_kind,
    check_limit,
    check_sequence,
    check_text,
    check_texts,
    check_ttl,
)

MAX_PAGE: Final = 1000
MAX_CHANGED: Final = 100_000
"""Messages that one call changes at most."""
ERROR_CHARACTERS: Final = 1000
RECEIVER_CHARACTERS: Final = 4096
MOST_LOOKED_AT: Final = 1000
"""Messages of a state, for how it goes with all."""
_STATUSES: Final = 999
_ALL: Final = tuple(MessageState)
_ENDED: Final = (MessageState.DELIVERED, MessageState.FAILED)

Chosen = tuple[Sequence[MessageState], Sequence[Named] | None]
"""Of which states, and which of them, None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """As MessagesNow, of one receiver; `url` and `error` are of one message that failed."""

    pending: int = 0
    retrying: int = 0
    oldest_due_s: float = 0.0
    given_up: int = 0
    given_up_lately: int = 0
    url: str = ""
    error: str = ""


class WebhooksBase(ABC):
    """Webhooks, but for the storage itself."""

    _limits: Limits

    async def claim(
        self,
        holder: str,
        *,
        limit: int,
        per_receiver: int,
        lease_s: float,
        full: Collection[str] = (),
    ) -> list[Message]:
        check_text("holder", holder, NAME_CHARACTERS)
        check_limit("limit", limit, MAX_PAGE)
        check_limit("per_receiver", per_receiver, MAX_PAGE)
        check_ttl("lease_s", lease_s)
        check_texts("full", full, RECEIVER_CHARACTERS)
        return await self._claim(holder, limit, per_receiver, lease_s, frozenset(full))

    async def settle(self, told: Sequence[Told]) -> None:
        check_sequence("told", told)
        for place, one in enumerate(told):
            _check_told(f"told[{place}]", one)
        # Of a claim that is settled twice the first word counts.
        kept: dict[tuple[Named, int], Told] = {}
        for one in told:
            name = named(one.id)
            if name is not None:
                error = without_unstorable(one.error[:ERROR_CHARACTERS])
                kept.setdefault((name, one.claim), replace(one, error=error))
        if kept:
            await self._settle({name: one for (name, _), one in sorted(kept.items())})

    async def get(self, id: str, *, namespace: str) -> Message:
        check_text("id", id, self._limits.id_characters)
        self._check_namespace(namespace)
        name = named(id)
        found = None if name is None else await self._get(name, namespace)
        if found is None:
            raise MessageNotFound(id, namespace)
        return found

    async def search(self, search: MessageSearch) -> MessagePage:
        check_kind("search", search, MessageSearch)
        self._check_namespace(search.namespace)
        if search.state is not None:
            check_choice("state", search.state, MessageState)
        check_text("job_id", search.job_id, self._limits.id_characters, required=False)
        check_limit("limit", search.limit, MAX_PAGE)
        check_text("after", search.after, REASON_CHARACTERS, required=False)
        states = _ALL if search.state is None else (search.state,)
        before = decode_place(search)
        found = await self._search(search, states, before, search.limit + 1)
        messages = tuple(found[: search.limit])
        if len(found) <= search.limit:
            return MessagePage(messages=messages)
        last = named(messages[-1].id)
        cursor = "" if last is None else encode_place(search, last.number)
        return MessagePage(messages=messages, next_cursor=cursor)

    async def redeliver(
        self,
        namespace: str,
        *,
        ids: Sequence[str] = (),
        state: MessageState | None = None,
        limit: int = 10_000,
    ) -> int:
        states, names = self._chosen(namespace, ids, state, limit)
        if state is MessageState.PENDING:
            raise InvalidArgument("state", "PENDING is told anyway; give DELIVERED or FAILED")
        mine = [one for one in states if one in _ENDED]
        return 0 if names == [] else await self._redeliver(namespace, (mine, names), limit)

    async def purge(
        self,
        namespace: str,
        *,
        ids: Sequence[str] = (),
        state: MessageState | None = None,
        limit: int = 10_000,
    ) -> int:
        states, names = self._chosen(namespace, ids, state, limit)
        return 0 if names == [] else await self._purge(namespace, (states, names), limit)

    async def count(
        self,
        namespace: str,
        *,
        ids: Sequence[str] = (),
        state: MessageState | None = None,
        limit: int = 10_000,
        ended: bool = False,
    ) -> int:
        check_flag("ended", ended)
        states, names = self._chosen(namespace, ids, state, limit)
        mine = [one for one in states if one in _ENDED] if ended else states
        return 0 if names == [] or not mine else await self._count(namespace, (mine, names), limit)

    async def standing(self, namespace: str, *, type: str = "") -> MessagesNow:
        self._check_namespace(namespace)
        check_text("type", type, self._limits.id_characters, required=False)
        groups = await self._standing(namespace, type)
        bad = [one for one in groups if one.retrying or one.given_up]
        worst = max(bad, key=lambda one: one.retrying + one.given_up, default=None)
        receiver = "" if worst is None else receiver_of(namespace, worst.url)
        return MessagesNow(
            most=MOST_LOOKED_AT,
            pending=sum(one.pending for one in groups),
            retrying=sum(one.retrying for one in groups),
            oldest_due_s=max((one.oldest_due_s for one in groups), default=0.0),
            given_up=sum(one.given_up for one in groups),
            given_up_lately=sum(one.given_up_lately for one in groups),
            receiver=receiver.removeprefix(f"{namespace} "),
            error="" if worst is None else worst.error,
        )

    async def stock(self) -> MessageStock:
        return await self._stock()

    async def prune(self, *, delivered_s: float, failed_s: float, limit: int) -> int:
        check_duration("delivered_s", delivered_s)
        check_duration("failed_s", failed_s)
        check_limit("limit", limit, MAX_CHANGED)
        return await self._prune(delivered_s, failed_s, limit)

    def _check_namespace(self, namespace: str) -> None:
        check_text("namespace", namespace, self._limits.id_characters)

    def _chosen(
        self, namespace: str, ids: Sequence[str], state: MessageState | None, limit: int
    ) -> Chosen:
        self._check_namespace(namespace)
        check_texts("ids", ids, self._limits.id_characters)
        if state is not None:
            check_choice("state", state, MessageState)
        check_limit("limit", limit, MAX_CHANGED)
        if not ids and state is None:
            raise InvalidArgument("ids", "give ids or a state: both empty would select all")
        names = sorted({name for id in ids if (name := named(id)) is not None}) if ids else None
        return _ALL if state is None else (state,), names

    # What a store implements

    @abstractmethod
    def _claim(
        self, holder: str, limit: int, per_receiver: int, lease_s: float, full: frozenset[str]
    ) -> Awaitable[list[Message]]: ...

    @abstractmethod
    def _settle(self, told: Mapping[Named, Told]) -> Awaitable[None]: ...

    @abstractmethod
    def _get(self, name: Named, namespace: str) -> Awaitable[Message | None]: ...

    @abstractmethod
    def _search(
        self, search: MessageSearch, states: Sequence[MessageState], before: int, limit: int
    ) -> Awaitable[Sequence[Message]]:
        """Those with numbers below `before`, the highest first."""

    @abstractmethod
    def _redeliver(self, namespace: str, chosen: Chosen, limit: int) -> Awaitable[int]: ...

    @abstractmethod
    def _purge(self, namespace: str, chosen: Chosen, limit: int) -> Awaitable[int]: ...

    @abstractmethod
    def _count(self, namespace: str, chosen: Chosen, limit: int) -> Awaitable[int]: ...

    @abstractmethod
    def _standing(self, namespace: str, type: str) -> Awaitable[Sequence[Standing]]:
        """Of the MOST_LOOKED_AT oldest that are PENDING, and as many of the newest FAILED."""

    @abstractmethod
    def _stock(self) -> Awaitable[MessageStock]: ...

    @abstractmethod
    def _prune(self, delivered_s: float, failed_s: float, limit: int) -> Awaitable[int]: ...


def _check_told(field: str, told: Told) -> None:
    check_kind(field, told, Told)
    check_text(f"{field}.id", told.id, NAME_CHARACTERS)
    check_count(f"{field}.claim", told.claim)
    check_choice(f"{field}.state", told.state, MessageState)
    check_duration(f"{field}.after_s", told.after_s)
    if told.status is not None:
        check_count(f"{field}.status", told.status, _STATUSES)
    check_kind(f"{field}.error", told.error, str)


def is_try(told: Told) -> bool:
    """Whether somebody was asked; else the message is given back."""
    return bool(told.status is not None or told.error or told.state is not MessageState.PENDING)
