"""The controller's process under its supervisor; here it does no more than each test needs."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tests.waiting import DEADLINE_S

from queue_operator.backends.ending import end_tasks
from queue_operator.controller.ownership import NamespaceTaken
from queue_operator.controller.vitals import BEAT_S, Standing, Vitals
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.settings import ControllerSettings, WebhookSettings
from queue_operator.supervisor import child as module
from queue_operator.supervisor.child import STEADY_S
from queue_operator.supervisor.controller import ControllerChild
from queue_operator.supervisor.sender import SenderChild
from queue_operator.webhooks.figures import Vitals as SenderVitals
from queue_operator.webhooks.schedule import Outcome

BUSY_S = 0.3
TICKS_S = 0.02
"""The kernel tells of whole hundredths, of the user's time and its own."""


class Pauses:
    """Time passes as the test says; who pauses is let go on by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.begun: asyncio.Queue[float] = asyncio.Queue()
        self._over = asyncio.Event()

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        self.begun.put_nowait(delay_s)
        await self._over.wait()
        self._over.clear()

    async def next(self) -> float:
        async with asyncio.timeout(DEADLINE_S):
            return await self.begun.get()

    def end(self) -> None:
        self._over.set()


def end_with(code: int, vitals: Vitals) -> None:
    raise SystemExit(code)


def count_and_end(vitals: Vitals) -> None:
    """As a controller that does its work, takes its time for it, and is killed in the middle."""
    figures = vitals.figures
    figures.status_written += 2
    figures.asked("200")
    figures.asked("429")
    figures.watched_again("queueworkers")
    figures.observe_lag(0.003)
    figures.compared(1.5)
    figures.status_backlog = figures.intake_backlog = figures.owned_namespaces = 5
    figures.status_since_s = 1.0
    while time.process_time() < BUSY_S:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def serve(vitals: Vitals) -> None:
    """Until SIGTERM, as the controller does, but with one sign of life only; says who it is."""
    vitals.beat()
    vitals.over_quota.value = os.getpid()
    vitals.stand(Standing.SERVING)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        signal.pause()


def serve_on(vitals: Vitals) -> None:
    """Whatever it is told: as one that gets no turn of the processor any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    vitals.beat()
    vitals.over_quota.value = os.getpid()
    vitals.stand(Standing.SERVING)
    while True:
        signal.pause()


def serve_late(vitals: Vitals) -> None:
    """Gives no sign of life while the supervisor looks twice."""
    threading.Event().wait(2.5 * BEAT_S)
    serve(vitals)


@asynccontextmanager
async def supervised(
    body: Callable[[Vitals], None], pauses: Pauses, *, hung_after_s: float = 600.0
) -> AsyncIterator[ControllerChild]:
    settings = ControllerSettings(hung_after_s=hung_after_s)
    supervisor = ControllerChild(settings, body, pauses)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        await end_tasks([running])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.to_thread(os.sched_yield)


def standing(supervisor: ControllerChild) -> tuple[bool, int]:
    figures = supervisor.figures()
    assert figures is not None
    return figures.up, figures.restarts


async def refusal(supervisor: ControllerChild) -> QueueError:
    with pytest.raises(QueueError) as raised:
        await supervisor.check()
    return raised.value


async def test_one_that_ends_is_started_again_each_time_a_little_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses = Pauses()
    async with supervised(partial(end_with, 3), pauses) as supervisor:
        for number, (least, most) in enumerate([(0.5, 1), (1, 2), (2, 4)]):
            assert least <= await pauses.next() <= most
            assert standing(supervisor) == (False, number)
            assert isinstance(await refusal(supervisor), Unavailable)
            pauses.end()
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 3
    assert told[0].startswith("the controller ended with exit code 3; REST and gRPC go on")


async def test_after_a_steady_run_the_pause_is_short_again() -> None:
    pauses = Pauses()
    async with supervised(serve, pauses) as supervisor:
        for _ in range(4):
            await until(lambda: standing(supervisor)[0])
            await supervisor.check()
            pauses.now_s += STEADY_S
            figures = supervisor.figures()
            assert figures is not None
            os.kill(figures.over_quota, signal.SIGKILL)
            assert await pauses.next() <= 1
            pauses.end()


async def test_one_that_hangs_is_killed_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses = Pauses()
    async with supervised(serve, pauses, hung_after_s=1.5) as supervisor:
        await pauses.next()
        assert standing(supervisor) == (False, 0)
    killed, ended = (r.getMessage() for r in caplog.records if r.levelname == "ERROR")
    assert "silent for" in killed
    assert "ended with exit code -9" in ended


async def test_one_that_comes_up_slowly_has_more_time_at_each_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "START_S", 0.1)
    pauses = Pauses()

    def is_up() -> bool:
        pauses.end()
        return standing(supervisor)[0]

    async with supervised(serve_late, pauses, hung_after_s=0.1) as supervisor:
        await until(is_up)
        assert standing(supervisor)[1] >= 1


async def test_its_counters_go_on_when_it_is_started_again() -> None:
    pauses = Pauses()
    async with supervised(count_and_end, pauses) as supervisor:
        for starts in (1, 2, 3):
            await pauses.next()
            figures = supervisor.figures()
            assert figures is not None
            assert figures.restarts == starts - 1
            assert figures.status_writes["written"] == 2 * starts
            assert figures.api_requests == {"200": starts, "429": starts}
            assert figures.throttled == starts
            assert figures.watch_restarts["queueworkers"] == starts
            assert sum(figures.lag_counts) == starts
            assert figures.lag_total_s == pytest.approx(0.003 * starts)
            assert figures.cpu_s >= (BUSY_S - TICKS_S) * starts
            # What was so when it ended is not so any more.
            assert (figures.status_backlog, figures.intake_backlog) == (0, 0)
            assert (figures.owned_namespaces, figures.status_lag_s) == (0, 0.0)
            assert figures.resident_bytes is None
            assert figures.compared_at_s is not None
            pauses.end()


async def test_what_it_takes_and_how_long_a_status_waits_is_seen_while_it_runs() -> None:
    async with supervised(serve_behind, Pauses()) as supervisor:
        await until(lambda: standing(supervisor)[0])
        figures = supervisor.figures()
        assert figures is not None
        assert figures.resident_bytes is not None
        assert figures.resident_bytes > 1e6
        assert 0 < figures.cpu_s < DEADLINE_S
        assert 100 <= figures.status_lag_s <= 100 + DEADLINE_S


def serve_behind(vitals: Vitals) -> None:
    vitals.figures.status_since_s = time.monotonic() - 100
    serve(vitals)


async def test_it_ends_with_its_supervisor() -> None:
    pauses = Pauses()
    async with supervised(serve, pauses) as supervisor:
        await until(lambda: standing(supervisor)[0])
        figures = supervisor.figures()
        assert figures is not None
        pid = figures.over_quota
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_one_that_does_not_end_is_killed_however_often_its_supervisor_is_told_to_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Longer than whoever ends the supervisor waits before it tells it again.
    monkeypatch.setattr(module, "STOP_S", 1.5)
    async with supervised(serve_on, Pauses()) as supervisor:
        await until(lambda: standing(supervisor)[0])
        figures = supervisor.figures()
        assert figures is not None
        pid = figures.over_quota
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "the controller did not end in time and is killed" in caplog.text


async def test_namespaces_of_others_are_told_of() -> None:
    pauses = Pauses()
    async with supervised(refuse_two, pauses) as supervisor:
        await until(lambda: standing(supervisor)[0])
        refused = await refusal(supervisor)
        assert isinstance(refused, NamespaceTaken)
        assert "2 of the namespaces" in str(refused)


def refuse_two(vitals: Vitals) -> None:
    vitals.refused.value = 2
    serve(vitals)


async def test_where_none_is_wanted_nothing_is_told() -> None:
    supervisor = ControllerChild(ControllerSettings(enabled=False), partial(end_with, 1), Pauses())
    assert supervisor.figures() is None
    await supervisor.check()


def try_and_end(vitals: SenderVitals) -> None:
    vitals.figures.tried(Outcome.DELIVERED, 0.02)
    vitals.figures.tried(Outcome.RETRIED, 90.0)
    os.kill(os.getpid(), signal.SIGKILL)


async def test_the_sender_of_messages_is_watched_alike_and_its_counters_go_on() -> None:
    pauses = Pauses()
    sender = SenderChild(WebhookSettings(), try_and_end, pauses)
    running = asyncio.create_task(sender.run())
    try:
        for starts in (1, 2):
            await pauses.next()
            figures = sender.figures()
            assert figures is not None
            assert figures.outcomes == {
                "delivered": starts,
                "retried": starts,
                "failed": 0,
                "refused": 0,
            }
            assert (figures.seconds[1], figures.seconds[-1]) == (starts, starts)
            assert figures.seconds_total == pytest.approx(90.02 * starts)
            assert (figures.restarts, figures.resident_bytes) == (starts - 1, None)
            assert figures.cpu_s > 0
            pauses.end()
    finally:
        await end_tasks([running])


def test_where_no_sender_is_wanted_nothing_is_told_of_it() -> None:
    sender = SenderChild(WebhookSettings(enabled=False), try_and_end, Pauses())
    assert (sender.enabled, sender.figures()) == (False, None)
