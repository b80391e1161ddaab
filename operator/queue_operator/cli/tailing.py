"""The log of a job, line by line as it grows."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from queue_operator.client import AsyncQueueClient, JobLog, Phase
from queue_operator.client.models import AttemptLog, LogLine
from queue_operator.domain.running import LOG_LINES

LOOK_S: Final = 1.0
"""Between two looks while the job runs."""


@dataclass(frozen=True, slots=True)
class News:
    """Lines of an attempt that were not there before; `missed` came before them and are gone.
    `is_first`: nothing of the attempt was told yet.
    """

    attempt: AttemptLog
    is_first: bool
    missed: int
    lines: tuple[LogLine, ...]


class Tail:
    """Knows what was told."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}

    def news(self, log: JobLog) -> Iterator[News]:
        """What is new in `log`."""
        for one in log.attempts:
            told = self._told.get(one.attempt)
            self._told[one.attempt] = one.dropped + len(one.lines)
            if told is None:
                yield News(one, True, one.dropped, one.lines)
            elif lines := one.lines[max(told - one.dropped, 0) :]:
                yield News(one, False, max(one.dropped - told, 0), lines)


async def follow(
    queue: AsyncQueueClient,
    job_id: str,
    show: Callable[[News], None],
    *,
    attempt: int | None,
    lines: int | None,
    namespace: str | None,
    look_s: float = LOOK_S,
) -> None:
    """Shows the log until the job has ended. It looks when something happens to the job, and every
    `look_s` seconds while it runs.
    """
    tail, happened = Tail(), asyncio.Event()
    runs = ran = False

    async def listen() -> None:
        nonlocal runs, ran
        async for event in queue.watch(job_id, namespace=namespace):
            runs = event.status is Phase.RUNNING
            ran = ran or runs
            happened.set()
        happened.set()

    async def look(most: int | None) -> None:
        log = await queue.log(job_id, attempt=attempt, lines=most, namespace=namespace)
        for news in tail.news(log):
            show(news)

    listening = asyncio.create_task(listen())
    listening.add_done_callback(lambda _: happened.set())
    try:
        await look(lines)
        while not listening.done():
            await _until(happened, look_s if runs else None)
            happened.clear()
            await look(LOG_LINES)
        await listening
        if ran:
            # Nobody waits for lines: the last ones may come after the end.
            await asyncio.sleep(look_s)
        await look(LOG_LINES)
    finally:
        listening.cancel()


async def _until(happened: asyncio.Event, most_s: float | None) -> None:
    try:
        async with asyncio.timeout(most_s):
            await happened.wait()
    except TimeoutError:
        pass
