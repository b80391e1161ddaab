"""Messages about jobs that have ended, to whoever wants to be told: the outbox of webhooks."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.situation import MessagesNow
from queue_operator.domain.states import JobState

_PORTS = {"http": 80, "https": 443}


class MessageState(StrEnum):
    """PENDING is told, or told again, when it is due. The other two are told no more, unless
    somebody asks for it.
    """

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


def receiver_of(namespace: str, url: str) -> str:
    """Who is told, as far as it is fair and bounded: `namespace scheme://host:port`."""
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    port = parts.port or _PORTS.get(scheme, 0)
    shown = f"[{host}]" if ":" in host else host
    return f"{namespace} {scheme}://{shown}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One finalisation of a job that has a callback URL. `id` is unique among all queues and the
    same at every try: letters, digits, - and _. `tries` were made so far, and `last_at`,
    `last_status` and `last_error` are of the last one. `next_at` is when it is told (again), None
    unless PENDING. `claim` is raised by each claim, and fences what is settled.
    """

    id: str
    namespace: str
    job_id: str
    type: str
    url: str
    job_state: JobState
    finalized_at: datetime
    attempt: int
    state: MessageState = MessageState.PENDING
    tries: int = 0
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_status: int | None = None
    last_error: str = ""
    created_at: datetime
    claim: int = 0

    @property
    def receiver(self) -> str:
        return receiver_of(self.namespace, self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of one try: DELIVERED, FAILED (no further one), or PENDING, and due again
    `after_s` later by the clock of the store. PENDING without a status and an error is given back:
    nothing was tried.
    """

    id: str
    claim: int
    state: MessageState
    after_s: float = 0.0
    status: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSearch:
    """Filters that must all hold; an empty one does not filter. `limit` is 1 to 1000; `after` is
    `next_cursor` of the page before, good for the same search only.
    """

    namespace: str = DEFAULT_NAMESPACE
    state: MessageState | None = None
    job_id: str = ""
    after: str = ""
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Newest first. `next_cursor` is "" on the last page."""

    messages: tuple[Message, ...] = ()
    next_cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStock:
    """How many there are by namespace, and for how long the oldest is due, 0 for none."""

    pending: Mapping[str, int] = field(default_factory=Counter)
    failed: Mapping[str, int] = field(default_factory=Counter)
    oldest_due_s: float = 0.0


@runtime_checkable
class Webhooks(Protocol):
    """The outbox. A message is written by whatever ends a job that has a callback URL, together
    with that, one for each end; it outlives the job.
    """

    async def claim(
        self,
        holder: str,
        *,
        limit: int,
        per_receiver: int,
        lease_s: float,
        full: Collection[str] = (),
    ) -> list[Message]:
        """Due messages that nobody holds, the oldest of each receiver first, at most `per_receiver`
        of one, the receivers in turn, so that none waits for another; none of those `full`. Each
        is held for `lease_s`; afterwards its holder counts as dead, and another may take it.
        """
        ...

    async def settle(self, told: Sequence[Told]) -> None:
        """Writes what came of claims. One that is no longer current changes nothing."""
        ...

    async def get(self, id: str, *, namespace: str) -> Message:
        """Raises MessageNotFound."""
        ...

    async def search(self, search: MessageSearch) -> MessagePage:
        """Raises InvalidArgument for a limit outside 1 to 1000 or a cursor of another search."""
        ...

    async def redeliver(
        self,
        namespace: str,
        *,
        ids: Sequence[str] = (),
        state: MessageState | None = None,
        limit: int = 10_000,
    ) -> int:
        """Makes messages that are told no more PENDING again, due now, as if never tried: those of
        `ids`, or up to `limit` of a `state`. Says how many.
        """
        ...

    async def purge(
        self,
        namespace: str,
        *,
        ids: Sequence[str] = (),
        state: MessageState | None = None,
        limit: int = 10_000,
    ) -> int:
        """Deletes messages, chosen likewise; one that is PENDING is never told then, but for a try
        that is under way. Says how many.
        """
        ...

    async def count(
        self,
        namespace: str,
        *,
        ids: Sequence[str] = (),
        state: MessageState | None = None,
        limit: int = 10_000,
        ended: bool = False,
    ) -> int:
        """How many `purge` would delete now, or if `ended` `redeliver` would make PENDING."""
        ...

    async def standing(self, namespace: str, *, type: str = "") -> MessagesNow:
        """How it goes with the messages of a namespace, or of one type in it. Looks at a bounded
        number of them, however many there are; those of ends just now may be missing.
        """
        ...

    async def stock(self) -> MessageStock:
        """Costs no more the more messages there were."""
        ...

    async def prune(self, *, delivered_s: float, failed_s: float, limit: int) -> int:
        """Deletes up to `limit` messages that ended so long ago. Says how many."""
        ...
