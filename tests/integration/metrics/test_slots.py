"""How many slots are needed, against the jobs that were brought into each situation."""

import pytest

from queue_operator.backends.figures import Naming
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres import slots as slots_module
from queue_operator.backends.protocol import Pause
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event

NAMING = Naming(max_pairs=100, max_namespaces=10, unused_s=3600.0)
MAIL, SCAN = frozenset({"pool=mail"}), frozenset({"a", "pool=scan"})


async def needed(store: PostgresBackend, namespace: str) -> dict[str, int]:
    stock = await store.figures.stock(NAMING)
    return {pool: n for (space, pool), n in stock.needed_slots.items() if space == namespace}


async def claim(store: PostgresBackend, namespace: str, limit: int, *tags: str) -> list[str]:
    demand = Demand(assignee_id="w", limit=limit, namespace=namespace, tags=frozenset(tags))
    taken = await store.claim([demand], lease_ttl_s=600.0)
    assert len(taken) == limit
    return [one.token for one in taken]


def jobs(namespace: str, name: str, count: int, **fields: object) -> list[Job]:
    return [
        Job(id=f"{name}-{n}", type=name, namespace=namespace, **fields)  # type: ignore[arg-type]
        for n in range(count)
    ]


async def test_what_runs_or_could_run_needs_a_slot(store: PostgresBackend) -> None:
    await store.enqueue_jobs(
        [
            *jobs("one", "mail", 5, tags=MAIL),
            *jobs("one", "scan", 3, tags=SCAN),
            *jobs("one", "plain", 4),
            *jobs("one", "tomorrow", 7, delay_s=86400.0, tags=MAIL),
            *jobs("one", "child", 2, tags=MAIL, depends_on=("plain-0",)),
        ]
    )
    assert await needed(store, "one") == {"mail": 5, "scan": 3, "": 4}
    [token, other] = await claim(store, "one", 2, "pool=mail")
    await claim(store, "one", 1, "a")
    assert await needed(store, "one") == {"mail": 5, "scan": 3, "": 4}
    done = Outcome("mail-0", Event.COMPLETE, "one", token, b"")
    failed = Outcome(
        "mail-1", Event.FAIL, "one", other, error=ErrorInfo("no"), retry_after_s=3600.0
    )
    for answer in await store.settle([done, failed]):
        assert answer.error is None
    assert await needed(store, "one") == {"mail": 3, "scan": 3, "": 4}
    await store.cancel_jobs([], [f"scan-{n}" for n in range(3)], namespace="one")
    # The one that runs has its slot until it has obeyed.
    assert await needed(store, "one") == {"mail": 3, "scan": 1, "": 4}
    await store.pause(Pause(namespace="one", type="mail"))
    assert await needed(store, "one") == {"mail": 0, "scan": 1, "": 4}
    await store.pause(Pause(namespace="one"))
    assert await needed(store, "one") == {"mail": 0, "scan": 1, "": 0}


async def test_suspended_jobs_need_none(store: PostgresBackend) -> None:
    await store.enqueue_jobs(jobs("two", "mail", 3, tags=MAIL))
    await store.set_suspended({("two", "mail-1"): True})
    assert await needed(store, "two") == {"mail": 2, "": 0}


async def test_of_many_that_wait_no_more_are_looked_for_than_a_bound(
    store: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue_jobs(
        [
            *jobs("three", "mail", 8, tags=MAIL),
            *[
                Job(id=f"later-{n}", type="mail", namespace="three", tags=MAIL, delay_s=3600.0)
                for n in range(4)
            ],
        ]
    )
    monkeypatch.setattr(slots_module, "MOST", 4)
    assert await needed(store, "three") == {"mail": 8, "": 0}
    monkeypatch.setattr(slots_module, "MOST", 3)
    assert await needed(store, "three") == {"mail": 3, "": 0}
