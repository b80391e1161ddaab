"""What was answered is on the disk: of the work of a process that is killed, all that it was told
is done, and the settings that make it so hold on the store's own connection.
"""

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Final

from tests.integration.sqlite.conftest import Ask
from tests.integration.sqlite.processes import running
from tests.programs import kill, line

from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.states import JobState
from queue_operator.tasks import SQLiteBackend as TaskBackend
from queue_operator.testing.clauses import proves
from queue_operator.testing.sqlite import SqliteStore

ENOUGH: Final = 40
FULL: Final = 2
"""What SQLite calls the mode in which a commit waits for the disk."""

WORK = """
async def main():
    backend = await SqliteBackend.open(PATH)
    for n in range(10_000):
        await backend.enqueue_jobs([Job(id=f"{n}-{k}", type="t") for k in "abc"])
        say(f"{n}-a {n}-b {n}-c INITIAL_PENDING")
        taken = await backend.claim([Demand(assignee_id=ME, limit=3)], lease_ttl_s=600.0)
        say(" ".join(one.job_id for one in taken) + " RUNNING")
        done = Outcome(taken[0].job_id, Event.COMPLETE, token=taken[0].token, result=b"r")
        [answer] = await backend.settle([done])
        say(f"{answer.job_id} {answer.state}")
        stopped = Outcome(taken[1].job_id, Event.STOP, token=taken[1].token)
        [answer] = await backend.settle([stopped])
        say(f"{answer.job_id} {answer.state}")

asyncio.run(main())
"""
ENDS: Final = {JobState.COMPLETED, JobState.STOPPED}
# What calls whose answer nobody has read yet may have made of a job.
NEXT: Final = {JobState.INITIAL_PENDING: {JobState.RUNNING, *ENDS}, JobState.RUNNING: ENDS}


@proves(
    "queue-semantics.Durability.rule.1",
    "queue-semantics.Durability.rule.2",
    "backend-api.ImplementationGuidelines.must.3",
    "backend-api.TestingRequirements.must.7",
)
async def test_a_process_killed_in_mid_work_leaves_all_that_it_was_told(
    path: Path, store: SqliteStore, ask: Ask
) -> None:
    told: dict[str, JobState] = {}
    async with running(path, WORK) as process:
        while Counter(told.values())[JobState.COMPLETED] < ENOUGH:
            *names, state = (await line(process)).split()
            told |= dict.fromkeys(names, JobState(state))
        await kill(process)
    backend = await store.open()
    found = await backend.look_up(list(told))
    states = {name: found[name].state for name in told if name in found}
    assert set(states) == set(told)
    later = {name for name, was in told.items() if states[name] is not was}
    assert {name for name in later if states[name] not in NEXT.get(told[name], set())} == set()
    assert ask("PRAGMA integrity_check") == [("ok",)]
    assert await store.faults() == []


def _settings(connection: sqlite3.Connection) -> tuple[object, ...]:
    names = ("synchronous", "journal_mode")
    return tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)


@proves("queue-semantics.Durability.rule.2", "backend-api.TestingRequirements.must.7")
async def test_a_commit_waits_for_the_disk(backend: SqliteBackend) -> None:
    assert await backend._file.read(_settings) == (FULL, "wal")
    assert await backend._file.write(_settings) == (FULL, "wal")


@proves("backend-sqlite.Storage.rule.1", "backend-sqlite.EnableWal.then.1")
async def test_a_commit_of_the_task_store_waits_for_the_disk(tmp_path: Path) -> None:
    tasks = TaskBackend(tmp_path / "tasks.db")
    await tasks.connect()
    try:
        assert await tasks._run(_settings) == (FULL, "wal")
    finally:
        await tasks.close()
