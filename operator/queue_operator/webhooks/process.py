"""The body of the sender's process."""

import asyncio
import logging
import os
import random
import secrets
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Protocol

import uvloop

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.webhooks import Webhooks
from queue_operator.domain.errors import Unavailable
from queue_operator.observing.signs import BEAT_S
from queue_operator.queue.clock import SystemClock, sleep_unless
from queue_operator.settings import WebhookSettings
from queue_operator.webhooks.body import Render
from queue_operator.webhooks.figures import Vitals
from queue_operator.webhooks.runner import Courier, Jobs, Poster, Sender, Sign

logger = logging.getLogger(__name__)

NICE: Final = 19
"""What jobs need of a processor comes before what receivers do."""
POOL_SIZE: Final = 2
"""Connections of the sender to the database."""
_FIRST_PAUSE_S: Final = 0.5
_LAST_PAUSE_S: Final = 10.0
_CLOSE_S: Final = 1.0


class Store(Jobs, Protocol):
    """The part of a backend that the sender needs."""

    @property
    def webhooks(self) -> Webhooks: ...

    async def close(self) -> None: ...


OpenStore = Callable[[], Awaitable[Store]]
OpenPoster = Callable[[], AbstractAsyncContextManager[Poster]]


def run_sender(
    settings: WebhookSettings,
    open_store: OpenStore,
    open_poster: OpenPoster,
    sign: Sign,
    render: Render,
    vitals: Vitals,
) -> None:
    """Runs until SIGTERM or SIGINT, behind all other processes of the machine that want the
    processor. A supervisor starts it again.
    """
    os.nice(NICE)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, open_store, open_poster, sign, render, vitals))


async def _serve(
    settings: WebhookSettings,
    open_store: OpenStore,
    open_poster: OpenPoster,
    sign: Sign,
    render: Render,
    vitals: Vitals,
) -> None:
    stop, clock = asyncio.Event(), SystemClock()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    beat = asyncio.create_task(_beat(vitals), name="beat")
    try:
        store = await _opened(open_store, stop)
        if store is None:
            return
        try:
            async with open_poster() as poster:
                courier = Courier(
                    outbox=store.webhooks,
                    jobs=store,
                    poster=poster,
                    sign=sign,
                    render=render,
                    clock=clock,
                    rng=random.random,
                    holder=secrets.token_hex(8),
                    figures=vitals.figures,
                )
                logger.info("sending messages to callback URLs")
                await Sender(settings, courier).run(stop)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await store.close()
    finally:
        await end_tasks([beat])


async def _beat(vitals: Vitals) -> None:
    while True:
        vitals.beat()
        await asyncio.sleep(BEAT_S)


async def _opened(open_store: OpenStore, stop: asyncio.Event) -> Store | None:
    """As soon as the store is there; None where `stop` is set before."""
    pause_s, said = _FIRST_PAUSE_S, False
    while not stop.is_set():
        try:
            return await open_store()
        except Unavailable as error:
            if not said:
                logger.warning("the sender of messages waits for the database: %s", error)
            said = True
        await sleep_unless(stop, pause_s, SystemClock())
        pause_s = min(2 * pause_s, _LAST_PAUSE_S)
    return None
