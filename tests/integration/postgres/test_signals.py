import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import psycopg
import pytest
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.arrivals import Arrivals
from queue_operator.backends.postgres.connection import Pool, open_pool
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.pulse import Pulse
from queue_operator.backends.postgres.signals import Announcer, Seen
from queue_operator.backends.postgres.staging import Staging
from queue_operator.backends.protocol import Kind, News, Topic
from queue_operator.domain.job import Demand, Job

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
EVERYTHING = frozenset(Topic)
NOBODY_LISTENS_THERE = "host=127.0.0.1 port=1 dbname=none"
END_LISTENING = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE application_name = 'queue-operator-listen' AND datname = current_database()
"""


@pytest.fixture
async def announcer(pool: Pool) -> AsyncIterator[Announcer]:
    announcer = Announcer(pool)
    yield announcer
    await announcer.aclose()


def listener(dsn: str | None, pool: Pool) -> Pulse:
    """As in a process of its own: what the test announces is another's for it."""
    return pulse_of(dsn, pool, Announcer(pool))


def pulse_of(dsn: str | None, pool: Pool, announcer: Announcer) -> Pulse:
    lanes, staging = Lanes(pool), Staging(pool)
    arrivals = Arrivals(pool, lanes, staging, lambda: None, lambda: None)
    return Pulse(dsn, pool, lanes, arrivals, staging, announcer)


async def heard(news: AsyncIterator[News]) -> frozenset[Topic]:
    """The next topics; a signal that never comes fails instead of hanging the run."""
    async with asyncio.timeout(DEADLINE_S):
        return frozenset(await anext(news))


async def version(ask: Ask, topic: Topic) -> int:
    [(version,)] = await ask("SELECT pg_sequence_last_value(%s::regclass)", f"signal_{topic}")
    return version or 0


async def test_first_news_is_everything_then_what_was_announced(
    dsn: str, pool: Pool, announcer: Announcer
) -> None:
    async with aclosing(listener(dsn, pool).listen()) as topics:
        assert await heard(topics) == EVERYTHING
        announcer.announce(Topic.READY)
        assert await heard(topics) == {Topic.READY}
        announcer.announce(Topic.CANCEL, Topic.MIRROR)
        assert await heard(topics) == {Topic.CANCEL, Topic.MIRROR}


async def test_every_listener_hears_of_it(dsn: str, pool: Pool, announcer: Announcer) -> None:
    other_pool = await open_pool(dsn, size=1, connect_timeout_s=5.0, statement_timeout_s=30.0)
    async with (
        other_pool,
        aclosing(listener(dsn, pool).listen()) as here,
        aclosing(listener(dsn, other_pool).listen()) as there,
    ):
        assert [await heard(here), await heard(there)] == [EVERYTHING, EVERYTHING]
        announcer.announce(Topic.SESSION)
        assert [await heard(here), await heard(there)] == [{Topic.SESSION}, {Topic.SESSION}]


async def test_what_comes_back_elsewhere_is_found_at_once_also_without_a_name(
    dsn: str, backend: PostgresBackend
) -> None:
    """Its place is before the marks of this process."""
    here, there = backend, await PostgresBackend.open(dsn)
    # Too long to be named in a notification.
    kinds = [frozenset({"x" * 120 + f"{n}"}) for n in range(40)]
    await there.enqueue_jobs(
        [Job(id=f"{n} {m}", type="t", tags=tags) for n, tags in enumerate(kinds) for m in range(2)]
    )
    demand = Demand(assignee_id="w", limit=100)
    async with aclosing(here.listen()) as topics:  # type: ignore[type-var]
        await heard(topics)
        assert len(await here.claim([demand], lease_ttl_s=600.0)) == 80
        await there.reset_running_jobs()
        while Topic.READY not in await heard(topics):
            pass
        assert len(await here.claim([demand], lease_ttl_s=600.0)) == 80
    await there.close()


async def test_what_others_say_that_nobody_here_understands_is_passed_over(
    dsn: str, pool: Pool, announcer: Announcer, ask: Ask
) -> None:
    async with aclosing(listener(dsn, pool).listen()) as topics:
        assert await heard(topics) == EVERYTHING
        for payload in ("x", "[]", "{}", '{"versions": {"of-tomorrow": 8}, "origin": "o"}'):
            await ask("SELECT pg_notify('queue_operator', %s)", payload)
        announcer.announce(Topic.SESSION)
        assert await heard(topics) == {Topic.SESSION}
        announcer.announce(Topic.READY)
        assert await heard(topics) == {Topic.READY}


async def test_announcements_close_together_share_one_commit(
    pool: Pool, announcer: Announcer, ask: Ask
) -> None:
    before = await version(ask, Topic.READY)
    for _ in range(1000):
        announcer.announce(Topic.READY)
    await announcer.aclose()
    assert await version(ask, Topic.READY) == before + 1


async def test_what_comes_while_one_is_sent_goes_with_the_next(
    pool: Pool, announcer: Announcer, ask: Ask
) -> None:
    before = await version(ask, Topic.READY)
    announcer.announce(Topic.READY)
    while await version(ask, Topic.READY) == before:
        pass
    announcer.announce(Topic.READY)
    await announcer.aclose()
    assert await version(ask, Topic.READY) == before + 2


async def test_notification_carries_the_versions(dsn: str, announcer: Announcer, ask: Ask) -> None:
    before = await version(ask, Topic.CANCEL)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("LISTEN queue_operator")
        announcer.announce(Topic.CANCEL)
        notices = [n async for n in connection.notifies(timeout=DEADLINE_S, stop_after=1)]
    [told] = [json.loads(notice.payload) for notice in notices]
    assert told == {"origin": announcer.seen.origin, "versions": {"cancel": before + 1}}


async def test_polling_alone_is_enough(pool: Pool, announcer: Announcer) -> None:
    async with aclosing(listener(NOBODY_LISTENS_THERE, pool).listen()) as topics:
        assert await heard(topics) == EVERYTHING
        announcer.announce(Topic.READY)
        assert await heard(topics) == {Topic.READY}


async def test_everything_is_news_after_the_connection_was_lost(
    dsn: str, pool: Pool, announcer: Announcer, ask: Ask
) -> None:
    async with aclosing(listener(dsn, pool).listen()) as topics:
        assert await heard(topics) == EVERYTHING
        assert await ask(END_LISTENING) == [(True,)]
        assert await heard(topics) == EVERYTHING
        announcer.announce(Topic.MIRROR)
        assert await heard(topics) == {Topic.MIRROR}


async def test_versions_that_a_crash_set_back_are_followed(
    dsn: str, pool: Pool, announcer: Announcer, ask: Ask
) -> None:
    await ask("SELECT setval('signal_ready', 1000)")
    async with aclosing(listener(dsn, pool).listen()) as topics:
        assert await heard(topics) == EVERYTHING
        await ask("SELECT setval('signal_ready', 1)")
        await ask(END_LISTENING)
        assert await heard(topics) == EVERYTHING
        announcer.announce(Topic.READY)
        assert await heard(topics) == {Topic.READY}


async def test_listening_ends_with_its_connection(dsn: str, pool: Pool, ask: Ask) -> None:
    async with aclosing(listener(dsn, pool).listen()) as topics:
        await heard(topics)
    async with asyncio.timeout(DEADLINE_S):
        while await ask(END_LISTENING.replace("pg_terminate_backend(pid, 10000)", "pid")):
            pass


async def test_failed_announcement_is_sent_when_the_store_works_again(
    dsn: str, pool: Pool, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    failures = 0
    failed_twice = asyncio.Event()

    def drawn_after_each_failure() -> float:
        nonlocal failures
        failures += 1
        if failures == 2:
            failed_twice.set()
        return 0.0

    before = await version(ask, Topic.READY)
    announcer = Announcer(pool, rng=drawn_after_each_failure)
    async with aclosing(listener(dsn, pool).listen()) as topics:
        await heard(topics)
        await ask("ALTER SEQUENCE signal_ready RENAME TO signal_away")
        try:
            announcer.announce(Topic.READY)
            async with asyncio.timeout(DEADLINE_S):
                await failed_twice.wait()
        finally:
            await ask("ALTER SEQUENCE signal_away RENAME TO signal_ready")
        assert Topic.READY in await heard(topics)
    await announcer.aclose()
    assert await version(ask, Topic.READY) == before + 1
    warnings = [r for r in caplog.records if r.message.startswith("announcing ready failed")]
    assert len(warnings) == 1


async def test_closing_does_not_wait_for_a_store_that_fails(pool: Pool, ask: Ask) -> None:
    announcer = Announcer(pool)
    await ask("ALTER SEQUENCE signal_ready RENAME TO signal_away")
    try:
        announcer.announce(Topic.READY)
        async with asyncio.timeout(DEADLINE_S):
            await announcer.aclose()
    finally:
        await ask("ALTER SEQUENCE signal_away RENAME TO signal_ready")


async def test_nothing_is_announced_after_closing(pool: Pool, ask: Ask) -> None:
    announcer = Announcer(pool)
    before = await version(ask, Topic.READY)
    await announcer.aclose()
    announcer.announce(Topic.READY)
    await announcer.aclose()
    assert await version(ask, Topic.READY) == before


MAIL = Kind("team", "mail", frozenset({"eu"}))
BILL = Kind("team", "bill", frozenset())


def told(version: int, origin: str = "other", **more: object) -> dict[str, object]:
    return {"origin": origin, "versions": {"ready": version}, **more}


async def test_others_say_of_which_kinds_and_own_news_come_once(dsn: str, pool: Pool) -> None:
    here = Announcer(pool, hear=lambda news: pulse.hear(news))
    pulse = pulse_of(dsn, pool, here)
    there = Announcer(pool)
    async with aclosing(pulse.listen()) as news, asyncio.timeout(DEADLINE_S):
        assert frozenset(await anext(news)) == EVERYTHING
        here.announce_ready(frozenset({MAIL}))
        assert await anext(news) == {Topic.READY: frozenset({MAIL})}
        there.announce_ready(frozenset({BILL}))
        # The one before would have come back first.
        assert await anext(news) == {Topic.READY: frozenset({BILL})}
    await here.aclose()
    await there.aclose()


def test_what_was_missed_is_of_any_kind() -> None:
    kinds = [["team", "mail", ["eu"]]]
    seen = Seen("me")
    seen.rebase({Topic.READY: 10})
    assert seen.notice(told(11, kinds=kinds)) == {Topic.READY: frozenset({MAIL})}
    assert seen.notice(told(13, kinds=kinds)) == {Topic.READY: None}
    assert seen.notice(told(13, kinds=kinds)) == {}
    assert seen.note({Topic.READY: 14}) == {Topic.READY: None}
    assert seen.note({Topic.READY: 14}) == {}


def test_own_rises_are_no_news_and_hide_no_others() -> None:
    seen = Seen("me")
    seen.rebase({Topic.READY: 10})
    seen.raise_own({Topic.READY: 12})
    assert seen.note({Topic.READY: 12}) == {Topic.READY: None}
    seen.raise_own({Topic.READY: 13})
    assert seen.note({Topic.READY: 13}) == {}
    assert seen.notice(told(14, origin="me")) == {}
    seen.raise_own({Topic.READY: 15})
    assert seen.notice(told(16, kinds=[["team", "bill", []]])) == {Topic.READY: frozenset({BILL})}


async def test_the_pulse_outlives_an_error_of_any_kind(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*_: object) -> None:
        raise KeyError(2)

    with monkeypatch.context() as patched:
        patched.setattr(backend._pulse, "_read", breaks)
        waits = [await backend._pulse._turn() for _ in range(3)]
    assert waits == [0.25] * 3
    assert [record.exc_info is not None for record in caplog.records] == [True]
    await backend._pulse._turn()
