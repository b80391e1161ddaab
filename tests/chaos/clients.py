"""Clients that submit jobs of every fate, and cancel some."""

import asyncio
import json
import random
import uuid
from typing import Final

from tests.chaos.callbacks import Callbacks
from tests.chaos.doors import Door, Wish
from tests.chaos.proxy import waited

from queue_operator.domain.errors import DuplicateJob, JobNotFound, QueueError
from queue_operator.testing.history import Kind, Log

_RETRY_S: Final = 0.2
_CANCELLED: Final = 0.12
_SHORT: Final = 0.55
_TOLD: Final = 0.4
"""So many jobs have a callback."""
_KINDS: Final = {
    "task": 44,
    "threaded": 15,
    "stepping": 18,
    "parent": 8,
    "flaky": 8,
    "broken": 3,
    "overlong": 4,
}


class Client:
    """One client. It makes each call until it is answered, or until it has to stop."""

    def __init__(
        self,
        name: str,
        door: Door,
        log: Log,
        seed: int,
        jobs_per_s: float,
        callbacks: Callbacks,
    ) -> None:
        self._door, self._callbacks = door, callbacks
        self._name, self._log = name, log
        self._rng = random.Random(f"{seed} {name}")  # noqa: S311
        self._jobs_per_s = jobs_per_s
        self._cancels: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; cancels that are under way then are still seen through."""
        try:
            while not await waited(stop, self._rng.expovariate(self._jobs_per_s)):
                wish = self._wish()
                after_s, force = self._rng.uniform(0.0, 1.5), self._rng.random() < 0.5
                cancelled = self._rng.random() < _CANCELLED
                if await self._submit(wish, stop) and cancelled:
                    task = asyncio.create_task(self._cancel(wish.job_id, after_s, force, stop))
                    self._cancels.add(task)
                    task.add_done_callback(self._cancels.discard)
            await asyncio.gather(*self._cancels)
        finally:
            await self._door.close()

    def _wish(self) -> Wish:
        [kind] = self._rng.choices(list(_KINDS), list(_KINDS.values()))
        short = self._rng.random() < _SHORT
        seconds = self._rng.uniform(0.0, 0.05) if short else self._rng.uniform(0.5, 4.0)
        told = self._rng.random() < _TOLD
        payload = {"seconds": round(seconds, 3), "fail_times": self._rng.randint(1, 2)}
        return Wish(
            # A run draws the same jobs again, but their ids are new.
            job_id=f"{self._name}-{uuid.uuid4().hex[:12]}",
            type=kind,
            payload=payload,
            text=json.dumps(payload),
            # Few enough that some jobs use them up, when their workers die.
            max_attempts=self._rng.choice([3, 20, 20, 20]),
            timeout_s=None if kind == "overlong" else 20.0,
            callback_url=self._callbacks.drawn(self._rng) if told else "",
        )

    async def _submit(self, wish: Wish, stop: asyncio.Event) -> bool:
        tried = False
        while not (tried and stop.is_set()):
            try:
                await self._door.submit(wish)
            except DuplicateJob:
                # An earlier try was stored and its answer was lost: now it is acknowledged.
                assert tried, "nobody else makes this id"
                self._log.write(Kind.SUBMIT_ACKNOWLEDGED, wish.job_id, answer="stored before")
            except QueueError:
                tried = True
                await waited(stop, _RETRY_S)
                continue
            return True
        return False

    async def _cancel(self, job_id: str, after_s: float, force: bool, stop: asyncio.Event) -> None:
        await waited(stop, after_s)
        tries = 0
        while tries == 0 or not stop.is_set():
            tries += 1
            try:
                await self._door.cancel(job_id, force=force)
            except JobNotFound:
                return  # it was stored: the checker will tell
            except QueueError:
                await waited(stop, _RETRY_S)
            else:
                return
