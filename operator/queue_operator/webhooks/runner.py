"""The sender: claims messages that are due, tells their receivers, and writes what came of it."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.webhooks import Message, Told, Webhooks
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.domain.job import Job
from queue_operator.observing import about
from queue_operator.queue.clock import sleep_unless
from queue_operator.settings import WebhookSettings
from queue_operator.webhooks.body import Render, body, headers
from queue_operator.webhooks.figures import Figures
from queue_operator.webhooks.receivers import Held, Receivers
from queue_operator.webhooks.schedule import Answer, OurFault, Outcome, given_back, judged

logger = logging.getLogger(__name__)

LEASES: Final = 4
"""A message is held for so many times as long as one try may take."""
MARGIN_S: Final = 5.0
"""For what comes of a try to be written down before the message is somebody else's."""
CLAIM: Final = 128
"""Messages that one claim takes at most."""
APART_S: Final = 0.02
"""Between two claims, so that each finds more than one message."""
BUSY_S: Final = 0.25
IDLE_S: Final = 0.5
"""How often the outbox is looked at: while something was due the last time, and else."""
LATER_S: Final = 1.0
"""When a message is due again for which there is no place: its receiver is one of too many that do
not answer.
"""
SETTLE: Final = 500
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 10.0
"""While the store is away: the first pause, and the longest."""
GRACE_S: Final = 5.0
"""When the sender stops, how long tries may go on. Those that are cut then count as none, and the
messages are given back.
"""


class Poster(Protocol):
    """Never raises for what a receiver does."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer: ...


class Jobs(Protocol):
    """Where the bodies come from."""

    async def named_jobs(
        self, names: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Job]: ...


Sign = Callable[[Message, datetime, bytes], Mapping[str, str]]
"""The headers that prove to a receiver who it is that tells it. Raises QueueError where none can be
made now.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Courier:
    """What a sender works with. `holder` is whose its claims are, another one for each process."""

    outbox: Webhooks
    jobs: Jobs
    poster: Poster
    sign: Sign
    render: Render
    clock: Clock
    rng: Callable[[], float]
    holder: str
    figures: Figures
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class Sender:
    """One for each process. `run` is called once."""

    def __init__(self, settings: WebhookSettings, courier: Courier) -> None:
        self._settings = settings
        self._with = courier
        self._lease_s = LEASES * settings.total_s + MARGIN_S
        places = settings.concurrency
        self._receivers = Receivers(per_receiver=settings.per_receiver, places=places)
        self._tries: dict[asyncio.Task[None], Held] = {}
        self._told: list[tuple[Told, bool]] = []
        self._something_told = asyncio.Event()
        self._freed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._most = CLAIM

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then tries that have begun are finished within the grace. Raises
        ExceptionGroup for a fault in any part: one that goes on without the others looks alive.
        """
        async with asyncio.TaskGroup() as group:
            settling = group.create_task(self._settle(), name="settling of messages")
            try:
                await self._work(stop)
                await self._finish()
            finally:
                await end_tasks([settling, *self._tries])

    # Claims

    async def _work(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            self._freed.clear()
            try:
                claimed = await self._claim()
            except QueueError as error:
                failures += 1
                # Whoever comes back from an outage is not asked for everything at once.
                self._most = max(1, self._most // 2)
                if failures == 1:
                    logger.warning("the outbox cannot be read, trying again: %s", error)
                await self._rest(stop, _pause_s(failures))
                continue
            failures = 0
            self._most = min(CLAIM, self._most * 2)
            await self._wait(stop, claimed)

    async def _claim(self) -> int:
        """How many there were. Raises QueueError."""
        self._give_back(self._receivers.late(self._with.clock.monotonic()))
        self._begin_tries()
        limit = min(self._most, self._receivers.room)
        if not limit:
            return 0
        # What is in time by our clock is in time by the store's, which begins to count later.
        begin_by_s = self._with.clock.monotonic() + self._lease_s - self._settings.total_s
        messages = await self._with.outbox.claim(
            self._with.holder,
            limit=limit,
            per_receiver=self._settings.per_receiver,
            lease_s=self._lease_s,
            full=self._receivers.full(),
        )
        if messages:
            await self._take(messages, begin_by_s - MARGIN_S)
        return len(messages)

    async def _take(self, messages: Sequence[Message], begin_by_s: float) -> None:
        try:
            jobs = await self._with.jobs.named_jobs({(m.namespace, m.job_id) for m in messages})
        except QueueError:
            for message in messages:
                self._note(given_back(message), has_place=False)
            raise
        now = self._with.now()
        refused = []
        for message in messages:
            job = jobs.get((message.namespace, message.job_id))
            held = Held(message, self._body(message, job, now), begin_by_s)
            if not self._receivers.take(held):
                refused.append(held)
        self._give_back(refused, LATER_S)
        self._begin_tries()

    def _body(self, message: Message, job: Job | None, now: datetime) -> bytes:
        """A job that cannot be shown must not keep others from being told."""
        try:
            return body(message, job, now, self._with.render)
        except Exception:
            where = about(message.namespace, message.job_id)
            logger.exception("a job cannot be shown; its receiver is told less", extra=where)
            return body(message, None, now, self._with.render)

    async def _wait(self, stop: asyncio.Event, claimed: int) -> None:
        """Until there may be more to do: at once after a claim that found something, as soon as a
        receiver has room again.
        """
        if claimed or not self._receivers.room:
            await self._rest(stop, APART_S)
            if not stop.is_set():
                await sleep_unless(self._freed, BUSY_S, self._with.clock)
        else:
            await self._rest(stop, IDLE_S)

    async def _rest(self, stop: asyncio.Event, pause_s: float) -> None:
        await sleep_unless(stop, pause_s, self._with.clock)

    # Tries

    def _begin_tries(self) -> None:
        for held in self._receivers.due():
            task = asyncio.create_task(self._try(held), name="try of a message")
            self._tries[task] = held
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        held = self._tries.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A fault of ours, which must cost no other message its try.
            where = about(held.message.namespace, held.message.job_id)
            logger.error("a message could not be sent", exc_info=error, extra=where)
            self._heard(held, OurFault(), 0.0)
        self._begin_tries()

    async def _try(self, held: Held) -> None:
        message, clock = held.message, self._with.clock
        try:
            signed = self._with.sign(message, self._with.now(), held.body)
        except QueueError as error:
            self._heard(held, OurFault(error=f"it cannot be signed: {error}"), 0.0)
            return
        begun_s = clock.monotonic()
        answer = await self._with.poster.post(
            message.url, {**headers(message), **signed}, held.body
        )
        self._heard(held, answer, clock.monotonic() - begun_s)

    def _heard(self, held: Held, answer: Answer, took_s: float) -> None:
        message = held.message
        told, outcome = judged(
            message,
            answer,
            retry_for_s=self._settings.retry_for_s,
            rng=self._with.rng,
        )
        self._with.figures.tried(outcome, took_s)
        self._receivers.tried(held, succeeded=outcome is Outcome.DELIVERED)
        self._note(told)
        if outcome in (Outcome.FAILED, Outcome.REFUSED):
            logger.warning(
                "a message is given up after %d tries: %s",
                message.tries + 1,
                told.error,
                extra=about(message.namespace, message.job_id),
            )

    # What came of them

    def _note(self, told: Told, *, has_place: bool = True) -> None:
        self._told.append((told, has_place))
        self._something_told.set()
        self._freed.set()

    def _give_back(self, held: Collection[Held], after_s: float = 0.0) -> None:
        for one in held:
            self._note(given_back(one.message, after_s), has_place=False)

    async def _settle(self) -> None:
        failures = 0
        while True:
            await self._something_told.wait()
            await self._with.clock.sleep(APART_S if not failures else _pause_s(failures))
            try:
                await self._write()
                failures = 0
            except QueueError as error:
                failures += 1
                if failures == 1:
                    logger.warning("what came of messages cannot be written yet: %s", error)

    async def _write(self) -> None:
        """Raises QueueError; then all of it is still to be written."""
        async with self._writing:
            batch = self._told[:SETTLE]
            if batch:
                await self._with.outbox.settle([told for told, _ in batch])
                del self._told[: len(batch)]
                self._receivers.settled(sum(has_place for _, has_place in batch))
                self._freed.set()
            if not self._told:
                self._something_told.clear()

    async def _finish(self) -> None:
        """What waits is given back at once, and what does not end in time then."""
        self._give_back(self._receivers.late(float("inf")))
        if self._tries:
            await asyncio.wait(self._tries, timeout=GRACE_S)
        cut = list(self._tries.values())
        await end_tasks(list(self._tries))
        self._give_back(cut)
        with suppress(QueueError):
            while self._told:
                await self._write()


def _pause_s(failures: int) -> float:
    return min(LAST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16))
