"""Senders and a receiver of the miniature: the real sender, whose requests go to a receiver in the
same process.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.webhooks import Message
from queue_operator.domain.clock import Clock
from queue_operator.domain.job import Job
from queue_operator.settings import WebhookSettings
from queue_operator.testing.history import Kind, Log
from queue_operator.webhooks.figures import Figures
from queue_operator.webhooks.posting import Answer
from queue_operator.webhooks.runner import Courier, Sender


@dataclass
class SmallReceiver:
    """Accepts a message the first or the second time that it reads it."""

    clock: Clock
    log: Log
    rng: random.Random
    reads: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.log.write(Kind.RECEIVER_OPENED)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        message_id, job_id = headers["ce-id"], headers["ce-subject"]
        self.reads[job_id] += 1
        accepted = self.reads[job_id] > 1 or self.rng.random() < 0.7
        self.log.write(Kind.MESSAGE_READ, job_id, id=message_id, accepted=accepted)
        # On its way: lost, if the sender dies meanwhile.
        await self.clock.sleep(self.rng.uniform(0.01, 0.5))
        return Answer(status=204 if accepted else 500)


@dataclass
class SmallSender:
    """One process that sends messages, and dies now and then; then another takes its place."""

    backend: MemoryBackend
    receiver: SmallReceiver
    clock: Clock
    now: Callable[[], datetime]
    rng: random.Random
    running: asyncio.Task[None] | None = None

    def start(self) -> None:
        courier = Courier(
            outbox=self.backend.webhooks,
            jobs=self.backend,
            poster=self.receiver,
            sign=unsigned,
            render=rendered,
            clock=self.clock,
            rng=self.rng.random,
            holder=f"{self.rng.random()}",
            figures=Figures(),
            now=self.now,
        )
        settings = WebhookSettings(total_s=1.0)
        self.running = asyncio.create_task(Sender(settings, courier).run(asyncio.Event()))

    async def suffer(self) -> None:
        while True:
            await self.clock.sleep(self.rng.uniform(1.0, 6.0))
            await self.stop()
            self.start()

    async def stop(self) -> None:
        """Without a word."""
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)


def unsigned(message: Message, at: datetime, body: bytes) -> Mapping[str, str]:
    return {}


def rendered(job: Job, now: datetime) -> bytes:
    return b"{}"
