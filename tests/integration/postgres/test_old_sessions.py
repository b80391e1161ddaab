"""A transaction that was forgotten keeps every dead row, and worker sessions do not mind.

Nothing is timed here: what a call reads is counted by the server, in pages.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.integration.postgres.test_old_snapshot import pinned
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import SessionRoll, WorkerSession

__all__ = ["pinned"]

SESSIONS = 100
REPLICAS = ("operator-0", "operator-1")
BEATS = 300
STALE_S = 3600.0
# An index grows by a level now and then, a list of sessions is compressed a little better or worse.
MORE = 8

Call = Callable[[PostgresBackend], Awaitable[object]]


def sessions_of(replica: str) -> list[WorkerSession]:
    return [
        WorkerSession(
            session_id=f"{replica}-{n}",
            namespace="team",
            worker_name="mailer",
            replica=replica,
            connection=f"c-{replica}-{n}",
        )
        for n in range(SESSIONS)
    ]


def calls(beat: int) -> dict[str, Call]:
    """Each touch shows something else."""
    mine, theirs = (
        [replace(one, busy=(n + beat) % 3) for n, one in enumerate(sessions_of(replica))]
        for replica in REPLICAS
    )
    return {
        "touch": lambda backend: backend.touch_sessions(mine),
        "touch one": lambda backend: backend.touch_sessions(theirs[:1]),
        "keep": lambda backend: backend.keep_sessions(SessionRoll.of(REPLICAS[0], mine)),
        "keep others": lambda backend: backend.keep_sessions(SessionRoll.of(REPLICAS[1], theirs)),
        "list": lambda backend: backend.list_sessions(max_age_s=60),
        "news": lambda backend: backend.session_news(mine),
        "prune": lambda backend: backend._sessions.prune_sessions(STALE_S),
    }


async def test_the_last_of_many_touches_reads_no_more_than_the_first(pinned: str) -> None:
    """Neither do those who look at the sessions."""
    pages: dict[str, list[int]] = {name: [] for name in calls(0)}
    async with watched(pinned, plans="auto") as (backend, seen):
        for replica in REPLICAS:
            for one in sessions_of(replica):
                await backend.open_session(one)
        for beat in range(BEATS):
            for name, call in calls(beat).items():
                seen.clear()
                answer = await call(backend)
                assert answer is not False, name
                pages[name].append(seen.pages)
        listed = await backend.list_sessions()
    assert {one.busy for one in listed if one.replica == REPLICAS[0]} == {0, 1, 2}
    # From the tenth on plans are those that are kept.
    grown = {name: (told[2], told[9], told[-1]) for name, told in pages.items()}
    assert {n: told for n, told in grown.items() if told[2] > max(told[:2]) + MORE} == {}, grown
