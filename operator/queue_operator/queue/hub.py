"""Reads the log of events once for all who follow jobs at this replica, and only while somebody
does.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.horizon import Horizon
from queue_operator.backends.positions import LAST_EVENT_ID, Position
from queue_operator.backends.streams import Followed, Happened, Looked, Mark, Step
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import (
    JobNotFound,
    PositionExpired,
    QueueError,
    QuotaExceeded,
    Unavailable,
)
from queue_operator.queue.clock import SystemClock
from queue_operator.queue.followers import Audience, Ending, Follower, News, Wish
from queue_operator.queue.lifecycle import Troubles
from queue_operator.queue.protocol import HostedQueue

POLL_S: Final = 0.2
STEP_JOBS: Final = 20_000
"""Of so many jobs one step tells, and then those who follow have their turn."""
PATIENCE_S: Final = 5.0
"""How long one who is told of the past may make the others wait who are told with it."""
TELLS: Final = 500
"""So much is told, to one or to many, before all else that the server does has its turn."""
STREAMS: Final = 4000
STREAMS_PER_CALLER: Final = 2500
REPEAT_AFTER_S: Final = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Joining:
    """One who wants to follow, from a position or from now."""

    follower: Follower
    after: Position | None
    joined: asyncio.Future[None]


@dataclass(slots=True, eq=False)
class _Past:
    """Those who are told what they missed, and from where it is read."""

    audience: Audience
    since: Horizon
    patient_until_s: float


def hub_of(queue: HostedQueue, streams: int, each: int) -> "EventHub | None":
    """The hub of a queue's store, None where that keeps no log; ours all do."""
    followed = getattr(queue.backend, "followed", None)
    return (
        EventHub(followed, streams=streams, each=each) if isinstance(followed, Followed) else None
    )


class EventHub:
    """At most so many `streams` at once, and of one caller `each`. `sent` and `slow` count events
    told, and those who were too slow for them.
    """

    def __init__(
        self,
        store: Followed,
        *,
        streams: int = STREAMS,
        each: int = STREAMS_PER_CALLER,
        clock: Clock | None = None,
        poll_s: float = POLL_S,
        step_jobs: int = STEP_JOBS,
    ) -> None:
        self._store = store
        self._most, self._each = streams, each
        self._clock = clock or SystemClock()
        self._poll_s, self._step_jobs = poll_s, step_jobs
        self._callers: Counter[str] = Counter()
        self._live = Audience()
        self._past: _Past | None = None
        self._joining: list[_Joining] = []
        self._wake = asyncio.Event()
        self._mark: Mark | None = None
        self._at = Position("", 0, Horizon(0))
        self._doubtful = False
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self.sent = self.slow = 0

    @property
    def streams(self) -> int:
        """How many follow now."""
        return self._callers.total()

    @asynccontextmanager
    async def follow(
        self,
        wish: Wish,
        *,
        caller: str,
        after: str | None = None,
        field: str = LAST_EVENT_ID,
    ) -> AsyncIterator[Follower]:
        """Follows, meanwhile, from a position, which `field` has, or from now. Raises JobNotFound,
        PositionExpired, InvalidArgument for what is no position, QuotaExceeded where there are too
        many.
        """
        position = Position.parse(after, field) if after else None
        self._admit(caller)
        follower = Follower(wish, caller)
        self._callers[caller] += 1
        try:
            await self._join(_Joining(follower, position, asyncio.Future()))
            yield follower
        finally:
            self._leave(follower)

    async def close(self) -> None:
        """Whoever follows goes on at another replica, from where it is."""
        self._closed = True
        task, self._task = self._task, None
        await end_tasks([task] if task else [])
        for one in self._joining:
            if not one.joined.done():
                one.joined.set_exception(Unavailable("the server is shutting down"))
        self._end_all()

    def position_of(self, follower: Follower) -> str:
        """Where one is that has been told everything."""
        return str(follower.own or self._at)

    def _admit(self, caller: str) -> None:
        if self._closed:
            raise Unavailable("the server is shutting down")
        if self.streams >= self._most:
            what = "streams of this server"
            raise QuotaExceeded(what, self.streams, self._most, REPEAT_AFTER_S)
        if self._callers[caller] >= self._each:
            what = "streams of one caller"
            raise QuotaExceeded(what, self._callers[caller], self._each, REPEAT_AFTER_S)

    async def _join(self, joining: _Joining) -> None:
        self._joining.append(joining)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="hub of events")
        try:
            await joining.joined
        finally:
            with contextlib.suppress(ValueError):
                self._joining.remove(joining)

    def _leave(self, follower: Follower) -> None:
        self._live.discard(follower)
        if self._past is not None:
            self._past.audience.discard(follower)
        self._callers[follower.caller] -= 1
        if not self._callers[follower.caller]:
            del self._callers[follower.caller]

    def _end_all(self) -> None:
        everybody = [*self._live.all, *(self._past.audience.all if self._past else ())]
        for one in everybody:
            one.end(Ending.AWAY)

    async def _run(self) -> None:
        troubles = Troubles("the hub of events")
        while self.streams:
            try:
                is_behind = await self._turn()
            except Exception as error:
                self._doubtful = True
                self._refuse(error)
                await self._clock.sleep(troubles.failed(error))
                continue
            troubles.recovered()
            if not is_behind:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._wake.wait()
        self._mark = self._past = None

    def _refuse(self, error: Exception) -> None:
        """Whoever wants to join comes again later."""
        told = error if isinstance(error, QueueError) else Unavailable("events cannot be read now")
        joining, self._joining = self._joining, []
        for one in joining:
            if not one.joined.done():
                one.joined.set_exception(told)

    async def _turn(self) -> bool:
        """Whether there is more to do at once."""
        self._wake.clear()
        await self._begin()
        joining = [one for one in self._joining if not one.joined.done()]
        if joining:
            await self._take(joining)
        is_late = self._past is not None and await self._catch_up(self._past)
        is_behind = await self._step()
        return is_late or is_behind

    async def _begin(self) -> None:
        if self._mark is not None and not self._doubtful:
            return
        mark = await self._store.mark()
        if self._mark is None or mark.store != self._mark.store:
            # What was told before is of no use in another database.
            self._end_all()
            self._at = Position(mark.store, mark.highest, mark.horizon)
        self._mark, self._doubtful = mark, False

    # Those who join

    async def _take(self, joining: Sequence[_Joining]) -> None:
        after = [one.after for one in joining if one.after is not None]
        kept = iter(await self._store.kept(after) if after else ())
        names = {
            (one.follower.wish.namespace, job_id)
            for one in joining
            for job_id in one.follower.wish.job_ids
        }
        looked = await self._store.look(names) if names else Looked(horizon=Horizon(0), jobs={})
        late: list[Follower] = []
        for one in joining:
            is_kept = one.after is None or next(kept)
            if one.joined.done():
                continue
            try:
                self._place(one, is_kept, looked)
            except QueueError as error:
                one.joined.set_exception(error)
                continue
            one.joined.set_result(None)
            own = one.follower.own
            if own is None or own.horizon.covers(self._at.horizon):
                self._live.add(one.follower)
                self._settle(one.follower)
            else:
                late.append(one.follower)
        self._tell_past_to(late)

    def _place(self, one: _Joining, is_kept: bool, looked: Looked) -> None:
        """Where one who joins stands. Raises JobNotFound, PositionExpired."""
        follower, wish = one.follower, one.follower.wish
        if one.after is not None:
            if not is_kept:
                raise PositionExpired
            follower.own = one.after
        elif wish.job_ids:
            follower.own = Position(self._at.store, self._at.highest, looked.horizon)
        missing = [i for i in wish.job_ids if (wish.namespace, i) not in looked.jobs]
        if missing and len(missing) == len(wish.job_ids):
            raise JobNotFound(missing[0], wish.namespace)
        found = {i: looked.jobs[wish.namespace, i] for i in wish.job_ids if i not in missing}
        follower.live = {now.number: job_id for job_id, now in found.items()}
        for job_id, now in found.items():
            follower.looked[now.number] = now.state
            if one.after is None and follower.own is not None:
                follower.put(News.of_now(now, job_id, follower.own))
                self.sent += 1
        follower.looked_at = looked.horizon

    def _tell_past_to(self, late: Iterable[Follower]) -> None:
        for one in late:
            since = one.own.horizon if one.own else self._at.horizon
            if self._past is None:
                until_s = self._clock.monotonic() + PATIENCE_S
                self._past = _Past(Audience(), since, until_s)
            self._past.since = self._past.since.meet(since)
            self._past.audience.add(one)

    # What is told

    async def _catch_up(self, past: _Past) -> bool:
        """One step for those who missed something; whether there is more."""
        if not past.audience:
            self._past = None
            return False
        full = [one for one in past.audience.all if one.is_full]
        if full and self._clock.monotonic() < past.patient_until_s:
            return False
        for one in full:
            self._drop(past.audience, one)
        upto = self._at.horizon
        step = await self._store.step(
            past.since,
            upto,
            self._above_seq,
            past.audience.wants,
            past.audience.numbers,
            self._step_jobs,
        )
        await self._tell(past.audience, step)
        for one in past.audience.all:
            if one.own is not None:
                one.own = one.own.at(step.upto, self._at.highest)
        past.since = step.upto
        past.patient_until_s = self._clock.monotonic() + PATIENCE_S
        if not step.is_last:
            return True
        self._past = None
        for one in list(past.audience.all):
            self._live.add(one)
            self._settle(one)
        return False

    async def _step(self) -> bool:
        """What is new, for all who are not behind; whether there is more."""
        step = await self._store.step(
            self._at.horizon,
            None,
            self._above_seq,
            self._live.wants,
            self._live.numbers,
            self._step_jobs,
        )
        await self._tell(self._live, step)
        self._at = self._at.at(step.upto, max(self._at.highest, step.highest))
        for one in self._elsewhere():
            if one.own is not None:
                one.own = one.own.at(step.upto, self._at.highest)
            self._settle(one)
        return not step.is_last

    def _elsewhere(self) -> list[Follower]:
        return [one for one in self._live.all if one.own is not None or one.looked]

    def _settle(self, one: Follower) -> None:
        """Once it is where all others are it is there with them; what was seen of its jobs when it
        joined is all that is known of those of which nothing was told since.
        """
        if one.own is not None and one.own.is_within(self._at.horizon):
            one.own = None
        if one.looked and self._at.horizon.covers(one.looked_at):
            looked, one.looked = one.looked, {}
            for number, state in looked.items():
                one.note(number, state)

    async def _tell(self, audience: Audience, step: Step) -> None:
        full = {one for one in audience.all if one.is_full} if step.events else set()
        told = 0
        for event in step.events:
            told += self._tell_of(event, audience, full, step)
            if told >= TELLS:
                told = 0
                if audience is self._live:
                    # Who asks meanwhile where it is was told that much.
                    self._at = self._after(self._at, event, step)
                await asyncio.sleep(0)

    def _tell_of(
        self, event: Happened, audience: Audience, full: Collection[Follower], step: Step
    ) -> int:
        """To how many."""
        shared: News | None = None
        told = list(audience.of(event))
        for one in told:
            if one in full and one.ending is None:
                # What one step tells may be above the bound, and then there is time to read.
                self._drop(audience, one)
            elif one.own is None:
                if shared is None:
                    shared = _news(event, one, self._after(self._at, event, step))
                self._give(one, event, shared)
            elif not one.own.has(event.xid, event.place):
                one.own = self._after(one.own, event, step)
                self._give(one, event, _news(event, one, one.own))
        return len(told)

    def _after(self, position: Position, event: Happened, step: Step) -> Position:
        """After the last event of a step all of it is told."""
        if event is step.events[-1]:
            return position.at(step.upto, max(self._at.highest, step.highest))
        return position.after(event.xid, event.place, step.upto)

    def _give(self, one: Follower, event: Happened, news: News | None) -> None:
        if one.ending is not None:
            return
        if news is not None:
            one.put(news)
            self.sent += 1
        if event.number in one.live:
            one.looked.pop(event.number, None)
            one.note(event.number, event.state)

    def _drop(self, audience: Audience, one: Follower) -> None:
        self.slow += 1
        audience.discard(one)
        one.end(Ending.SLOW)

    @property
    def _above_seq(self) -> int:
        return self._mark.above_seq if self._mark else 0


def _news(event: Happened, one: Follower, at: Position) -> News | None:
    """A deletion is no status."""
    if event.status is None or event.state is None:
        return None
    job_id = event.job_id or one.live.get(event.number, "")
    return News.of(event, job_id, event.status, event.state, at)
