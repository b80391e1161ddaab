"""The one claimer: eligible jobs meet free slots, in one statement for all streams."""

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from queue_operator.backends.news import about
from queue_operator.backends.protocol import Backend, Glance, Kinds, PromptSignals
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.queue.clock import sleep_unless
from queue_operator.queue.demand import Filter, Round, plan, specimen
from queue_operator.queue.lifecycle import Loops
from queue_operator.queue.registry import StreamRegistry
from queue_operator.queue.stream import JobStream
from queue_operator.settings import QueueSettings

logger = logging.getLogger(__name__)

EAGER_POLL_S: Final = 0.05
"""Where something happened more is likely soon: look again early, then ever later, up to
the idle poll.
"""


Within = Callable[[Sequence[Demand]], Awaitable[list[Demand]]]
"""Cuts demands down to what may run."""


class Dispatcher:
    """Claims when jobs may be there and a slot is free, and again at once after a full claim.

    Which jobs may be there is remembered by filter: a filter is hungry from a wake-up until
    a claim for it comes back short. News that arrive while a claim runs make it hungry
    again, so nothing is missed, and nothing is asked twice.
    """

    def __init__(
        self,
        backend: Backend,
        streams: StreamRegistry,
        settings: QueueSettings,
        clock: Clock,
        rng: Callable[[], float] = random.random,
        within: Within | None = None,
    ) -> None:
        self._backend = backend
        self._within = within
        self._held_back: set[Filter] = set()
        self._glance = backend if isinstance(backend, Glance) else None
        # What this process does itself such a store tells too, and each thing once.
        self._hears_itself = isinstance(backend, PromptSignals)
        self._streams = streams
        self._settings = settings
        self._clock = clock
        self._loops = Loops(clock, rng)
        self._hungry: set[Filter] = set()
        # What claims asked for that were under way since the last look began.
        self._asked_meanwhile: set[Filter] = set()
        self._wanted = asyncio.Event()
        self._hastened = asyncio.Event()
        self._poll_s = settings.idle_poll_s
        self._look_now = False
        self._claim: asyncio.Future[None] | None = None
        self.doubted = asyncio.Event()

    async def start(self) -> None:
        self._loops.run("claiming jobs", self._turn)
        self._loops.run("polling for jobs", self._poll)

    async def stop(self) -> None:
        """Waits for a claim that is under way; what it brings is handed out or given back."""
        await self._loops.stop()
        await self.claimed()

    async def claimed(self) -> None:
        """Waits for the claim that is under way, if one is."""
        if self._claim is not None:
            await asyncio.wait([self._claim])

    # Wake-ups

    def wake(self, filters: Iterable[Filter]) -> None:
        """Jobs for these filters may be there."""
        self._hungry.update(filters)
        self._wanted.set()

    def wake_all(self) -> None:
        """Jobs of any kind may be there: first a look for which filters, where that is cheap."""
        self._look_now = True
        self._hastened.set()

    def freed(self) -> None:
        """Slots came back: they matter only to filters that are hungry already, or for which no
        more were allowed to run.
        """
        self._hungry |= self._held_back
        self._held_back.clear()
        self._go_on()

    def _go_on(self) -> None:
        if self._hungry:
            self._wanted.set()

    def news(self, kinds: Kinds) -> None:
        """Jobs of these kinds may be there; each matching filter is woken once."""
        if kinds is None:
            self.wake_all()
            return
        woken = {one for kind in kinds for one in self._streams.matching(kind)}
        if woken:
            self.wake(woken)

    def submitted(self, jobs: Sequence[Job]) -> None:
        """Jobs were stored by this process."""
        if not self._hears_itself:
            now = [job for job in jobs if not (job.delay_s or job.scheduled_at)]
            self.news(about((job.namespace, job.type, job.tags) for job in now))
            if len(now) < len(jobs):
                self.expect_soon()

    def may_be_ready(self) -> None:
        """By what this process did jobs may wait again, now or later."""
        if not self._hears_itself:
            self.wake_all()
            self.expect_soon()

    def expect_soon(self) -> None:
        """Jobs will become eligible by the passing of time: poll eagerly for a while."""
        if self._poll_s > EAGER_POLL_S:
            self._poll_s = min(EAGER_POLL_S, self._settings.idle_poll_s)
            self._hastened.set()

    async def _poll(self) -> None:
        self._hastened.clear()
        if not self._look_now:
            hastened = await sleep_unless(self._hastened, self._poll_s, self._clock)
            if not hastened:
                self._poll_s = min(self._poll_s * 2, self._settings.idle_poll_s)
            elif not self._look_now:
                return
        # What a claim that is under way takes is not there any more when it is over.
        await self.claimed()
        told, self._look_now = self._look_now, False
        try:
            await self._look(told)
        except BaseException:
            self._look_now |= told
            raise

    async def _look(self, told: bool) -> None:
        """Wakes the filters with free slots for which there are jobs; `told` that there may be
        some, also those that have no slot now: they look once they have one.
        """
        idle = self._streams.idle_filters()
        if self._claim is None or self._claim.done():
            self._asked_meanwhile.clear()
        found = set(await self._found(list(idle)))
        # A claim may have taken what was seen for these. What else came is seen when it is over.
        if unsure := found & self._asked_meanwhile:
            await self.claimed()
            found -= unsure
            now_idle = unsure & self._streams.idle_filters()
            found.update(await self._found(list(now_idle)))
            # The others look once they have a slot again.
            self._hungry |= unsure - now_idle
        if found:
            self.wake(found)
        if told:
            self._hungry.update(self._streams.filters() - idle)

    async def _found(self, filters: Sequence[Filter]) -> Sequence[Filter]:
        """Those for which a claim is worth its while, as far as the store can say cheaply."""
        if self._glance is None or not filters:
            return filters
        there = await self._glance.eligible_for([specimen(one) for one in filters])
        return [one for one, is_there in zip(filters, there, strict=True) if is_there]

    # Claims

    async def _turn(self) -> None:
        await self._wanted.wait()
        self._wanted.clear()
        # Filters of streams that are gone would make every freed slot look for work.
        self._hungry.intersection_update(self._streams.filters())
        planned = plan(self._streams.all(), self._hungry, self._settings.claim_batch)
        if planned.put_off:
            self._wanted.set()
        if planned.demands:
            # A claim must not be cut off: its jobs would be assigned and known to nobody.
            self._claim = asyncio.ensure_future(self._run(planned))
            await asyncio.shield(self._claim)

    async def _run(self, planned: Round[JobStream]) -> None:
        self._hungry.difference_update(planned.asked)
        self._asked_meanwhile.update(planned.asked)
        try:
            demands = await self._allowed(planned)
            assignments = await self._ask(planned, demands) if demands else []
        except Exception:
            self.wake(planned.asked)
            self._doubt(planned.streams.values())
            raise
        got = self._hand_out(planned, assignments)
        full = [f for f, limit in planned.asked.items() if got[f] >= limit]
        if assignments and not full:
            # A claim can come back short while another replica holds the rows before it.
            self.expect_soon()
        self._hungry.update(full)
        self._go_on()

    async def _allowed(self, planned: Round[JobStream]) -> Sequence[Demand]:
        """The demands, cut where no more may run. Their filters are asked for again when a job
        has ended here, or, for jobs of others, with the next poll.
        """
        if self._within is None:
            return planned.demands
        demands = await self._within(planned.demands)
        if demands != planned.demands:
            allowed = Counter[str]()
            for demand in demands:
                allowed[demand.namespace] += demand.limit
            wanted = Counter[str]()
            for one, limit in planned.asked.items():
                wanted[one.namespace] += limit
            short = {name for name, limit in wanted.items() if allowed[name] < limit}
            self._held_back.update(one for one in planned.asked if one.namespace in short)
        return demands

    async def _ask(
        self, planned: Round[JobStream], demands: Sequence[Demand]
    ) -> Sequence[Assignment]:
        """Claims. One demand that the store refuses must not stop the others: a refused claim is
        halved until it stands alone, and then its stream ends with the error.
        """
        asking = {demand.assignee_id: planned.streams[demand.assignee_id] for demand in demands}
        defaults = {
            name: value for stream in asking.values() for name, value in stream.defaults.items()
        }
        try:
            return await self._backend.claim(
                demands, lease_ttl_s=self._settings.lease_ttl_s, defaults=defaults
            )
        except Unavailable:
            raise
        except QueueError as error:
            if len(demands) == 1:
                [stream] = asking.values()
                logger.warning("worker %s asks in vain: %s", stream.spec.worker_name, error)
                stream.fail(error)
                return []
        half = len(demands) // 2
        first = await self._ask(planned, demands[:half])
        return [*first, *await self._ask(planned, demands[half:])]

    def _doubt(self, streams: Iterable[JobStream]) -> None:
        """The claim may have been stored and its answer lost: before they are given more, the
        keeper asks the store what they have.
        """
        for stream in streams:
            stream.in_doubt = True
        self.doubted.set()

    def _hand_out(
        self, planned: Round[JobStream], assignments: Sequence[Assignment]
    ) -> Counter[Filter]:
        by_assignee: defaultdict[str, list[Assignment]] = defaultdict(list)
        for assignment in assignments:
            by_assignee[assignment.assignee_id].append(assignment)
        got: Counter[Filter] = Counter()
        for assignee_id, jobs in by_assignee.items():
            stream = planned.streams[assignee_id]
            got.update(stream.filter_for(job.type) for job in jobs)
            if stream.accepting:
                stream.push(jobs)
                self._streams.served(stream)
            else:
                stream.give_back(jobs)
        return got
