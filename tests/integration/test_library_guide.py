"""The program of the guide runs as it is printed, on each store, and its types are right."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.postgres.pair import free_ports
from tests.programs import finish, started

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import JobSearch, PrunableLog
from queue_operator.backends.registry import open_backend
from queue_operator.devcluster import Postgres
from queue_operator.domain.job import Job
from queue_operator.domain.lease import DEFAULT_LEASE_TTL_S
from queue_operator.domain.retry import DEFAULT_BACKOFF, DEFAULT_MAX_ATTEMPTS, Backoff
from queue_operator.domain.states import JobState
from queue_operator.testing.memory import ManualClock

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "library.md").read_text()
DATABASE = (ROOT / "docs" / "guides" / "database.md").read_text()


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


*PARTS, CONFTEST = blocks(GUIDE)
PROGRAM = "\n\n".join(PARTS)
[SAID] = blocks(GUIDE, "text")
A_TEST = """
from queue_operator.backends.postgres import migrate
import asyncio


def test_it_migrates(queue_url: str) -> None:
    assert len(asyncio.run(migrate(queue_url))) > 0
"""


@pytest.fixture
def addresses(tmp_path: Path, new_database: Callable[[], str]) -> dict[str, str]:
    """A new store of each kind; the guide's own is a file in the current folder."""
    return {"memory": "memory://", "sqlite": "", "postgres": _url(new_database())}


def _url(pairs: str) -> str:
    words = dict(word.split("=", 1) for word in pairs.split())
    login = f"{words['user']}:{words.get('password', '')}"
    return f"postgresql://{login}@{words['host']}:{words['port']}/{words['dbname']}"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_it_prints_what_the_guide_says_and_again_when_it_is_repeated(
    kind: str, addresses: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    env |= {"QUEUE": addresses[kind]} if addresses[kind] else {}
    for _ in range(2):
        async with started(
            *("env", "-C", tmp_path, sys.executable, "-W", "error", "program.py"), **env
        ) as process:
            assert await finish(process) == SAID
    assert _names(tmp_path) == {"program.py"} | ({"jobs.db"} if kind == "sqlite" else set())


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_its_types_are_right(tmp_path: Path) -> None:
    """As a caller's own checker sees them, who has the package and not our settings."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    [retention] = blocks(DATABASE)
    (tmp_path / "retention.py").write_text(retention)
    (tmp_path / "empty.ini").write_text("[mypy]\n")
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent"),
            *(
                "--config-file",
                tmp_path / "empty.ini",
                "--cache-dir",
                ROOT / ".mypy_cache" / "guides",
            ),
            *("program.py", "conftest.py", "retention.py"),
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout == "Success: no issues found in 3 source files\n", checked.stderr


@pytest.fixture
def program() -> dict[str, Any]:
    """What the guide's program defines, with a handler that waits."""
    text, end = PROGRAM.rsplit("asyncio.run", 1)
    assert end == "(main())\n"
    defined: dict[str, Any] = {}
    exec(text, defined)  # noqa: S102

    async def handle(_: object) -> bytes:
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never

    defined["handle"] = handle
    return defined


async def test_its_worker_renews_what_it_has_and_ends_what_is_cancelled(
    program: dict[str, Any],
) -> None:
    clock = ManualClock()
    store = MemoryBackend(clock=clock)
    worker = program["Worker"](store, "w")
    [job_id, *_] = await program["submit"](store)
    await worker.take()
    for _ in range(3):
        clock.advance(20.0)
        await worker.beat()
        await program["sweep"](store)
    assert (await store.get_job(job_id)).state is JobState.RUNNING
    await store.cancel_jobs([], [job_id])
    await worker.beat()
    # The others go on.
    await asyncio.wait(worker.settling, return_when=asyncio.FIRST_COMPLETED)
    assert (await store.get_job(job_id)).state is JobState.STOPPED
    assert len(worker.running) == 1
    for _, handler in worker.running.values():
        handler.cancel()
    await asyncio.gather(*worker.settling)


async def test_its_retention_deletes_what_ended_a_year_ago_and_nothing_else(
    program: dict[str, Any],
) -> None:
    clock = ManualClock()
    clock.advance(-86_400.0 * 500)
    store = MemoryBackend(clock=clock)

    async def end_some(of: str) -> None:
        await store.enqueue_jobs([Job(id=f"{of}-{n}", type="t", max_attempts=1) for n in range(4)])
        done, failed, *_ = await store.dequeue_jobs("w", [], 2)
        await store.complete_job(done.id, b"", token=done.token)
        await store.fail_job(failed.id, "no", token=failed.token)
        await store.cancel_jobs([], [f"{of}-2"])

    await end_some("old")
    await store.cancel_jobs([], ["old-3"])
    await store.enqueue_job(Job(id="waits", type="u", delay_s=86_400.0 * 1000))
    clock.advance(86_400.0 * 200)
    await end_some("new")
    clock.advance(86_400.0 * 300)
    await program["clean_up"](store)
    kept = await store.search_jobs(JobSearch())
    assert {job.id for job in kept.jobs} == {"waits", "new-0", "new-1", "new-2", "new-3"}


def test_its_server_for_tests_serves_a_test(tmp_path: Path) -> None:
    # Not in a folder of pytest's: the server's user must be able to enter it.
    folder = Path(f"/var/tmp/queue-operator-test-guide-{os.getpid()}")  # noqa: S108
    [port] = free_ports(1)
    conftest = re.sub(r"Path\(.*?\)", f"Path({str(folder)!r})", CONFTEST).replace(
        "54329", str(port)
    )
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_one.py").write_text(A_TEST)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "1 passed" in done.stdout, done.stdout
        assert not Postgres(folder, "127.0.0.1", port).running()
    finally:
        Postgres(folder, "127.0.0.1", port).kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_it_names_the_defaults_that_the_library_has() -> None:
    """Those that differ from REST's, as the code has them."""
    job = Job(id="j", type="t")
    assert (job.max_attempts, job.backoff, job.timeout_s) == (None, None, None)
    assert (DEFAULT_MAX_ATTEMPTS, DEFAULT_LEASE_TTL_S) == (4, 5.0)
    assert (Backoff().initial_delay_s, Backoff().max_delay_s) == (0.5, 30.0)
    assert Backoff() == DEFAULT_BACKOFF
    rows = {row.split("|")[1].strip(): row for row in GUIDE.splitlines() if row.startswith("| `")}
    assert "| 4 | a number |" in rows["`Job.max_attempts`"]
    assert "0.5 to 30 s" in rows["`Job.backoff`"]
    assert "| 5 s |" in rows["`dequeue_jobs(lease_ttl_s=…)`"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_logs_of_the_small_stores_keep_all(
    kind: str, tmp_path: Path, program: dict[str, Any]
) -> None:
    url = "memory://" if kind == "memory" else f"sqlite://{tmp_path}/jobs.db"
    store = await open_backend(url)
    await store.enqueue_job(Job(id="j", type="t"))
    await store.cancel_jobs([], ["j"])
    await store.delete_jobs([], ["j"])
    await program["roll_up"](store)
    await program["clean_up"](store)
    kept = [batch.event for batch in await store.read_events()]
    assert kept == ["SUBMIT", "CANCEL", "DELETE"]
    assert not isinstance(store, PrunableLog)
    await store.close()


def test_the_log_of_postgres_can_be_pruned() -> None:
    assert issubclass(PostgresBackend, PrunableLog)
