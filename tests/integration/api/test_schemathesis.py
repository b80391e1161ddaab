"""Whatever schemathesis makes of the document, the server answers as the document says."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pytest_asyncio import fixture
from tests.integration.api import hooks
from tests.integration.api.door import TOKEN

from queue_operator.api.app import create_app
from queue_operator.api.document import document
from queue_operator.api.routes import OPERATIONS
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService
from queue_operator.settings import AuthMode, AuthSettings, RestSettings, Settings
from queue_operator.testing.clauses import proves

ROOT: Final = Path(__file__).parents[3]
EXAMPLES: Final = 100
FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"
SETTINGS: Final = Settings(
    rest=RestSettings(host="127.0.0.1", port=0),
    auth=AuthSettings(mode=AuthMode.STATIC, tokens={"tests": SecretStr(TOKEN)}),
)


@fixture(loop_scope="session")
async def url(new_database: Any) -> AsyncIterator[str]:
    """A server on a store of its own, with jobs to ask for."""
    dsn = new_database()
    await migrate(dsn)
    # Parents that somebody cancels must not end meanwhile.
    backend = await PostgresBackend.open(dsn, cancel_timeout_s=86_400.0)
    queue = QueueService(backend, SETTINGS.queue)
    await queue.start()
    server = RestServer(create_app(queue, *build(SETTINGS.auth), SETTINGS), SETTINGS.rest)
    await server.start()
    await jobs_that_run(backend)
    await jobs_that_ended(backend)
    yield server.url
    await server.stop()
    await queue.close()


async def jobs_that_run(backend: PostgresBackend) -> None:
    """Parents, and the jobs that the document names as examples. They run for ever after one
    failure: examples that cancel and delete everything leave them there.
    """
    parameters = [
        parameter
        for methods in document(OPERATIONS)["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
    ]
    names = {one["example"] for one in parameters if one["name"] == "job_id"}
    names |= {hooks.parent(n) for n in range(hooks.PARENTS)}
    await backend.enqueue_jobs([Job(id=name, type="example") for name in sorted(names)])
    for job in await backend.dequeue_jobs("worker", (), len(names)):
        await backend.fail_job(job.id, "boom")
    assert len(await backend.dequeue_jobs("worker", (), len(names))) == len(names)


async def jobs_that_ended(backend: PostgresBackend) -> None:
    names = [hooks.ended(n) for n in range(hooks.ENDED)]
    there = hooks.ATTIC
    await backend.enqueue_jobs([Job(id=one, type="ended", namespace=there) for one in names])
    await backend.cancel_jobs((), names, namespace=there)


async def run(url: str, folder: Path) -> tuple[int, str, dict[str, Any]]:
    """The exit code, what is told, and the report of all checks on all operations."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("schemathesis"),
        "run",
        f"{url}/v1/openapi.json",
        f"--header=Authorization: Bearer {TOKEN}",
        "--checks=all",
        f"--max-examples={EXAMPLES * 10 if FULL else EXAMPLES}",
        "--workers=1",
        "--continue-on-failure",
        "--no-color",
        "--report=json",
        f"--report-dir={folder}",
        *([] if FULL else ["--generation-deterministic"]),
        cwd=folder,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "tests.integration.api.hooks",
            "PYTHONPATH": str(ROOT),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode(), json.loads(report_in(folder))


def report_in(folder: Path) -> str:
    [report] = folder.glob("json-*.json")
    return report.read_text()


@proves("external-api.Robustness.expect.2")
async def test_the_server_does_what_the_document_says(url: str, tmp_path: Path) -> None:
    code, said, report = await run(url, tmp_path)
    assert code == 0, said
    told = report["operations"]
    assert (told["tested"], told["errored"], told["skipped"]) == (len(OPERATIONS), 0, 0)
    assert report["test_cases"]["generated"] >= EXAMPLES * len(OPERATIONS)
    good = {
        name: sum(phase["accepted"] for phase in phases.values())
        for name, phases in report["valid_rates"].items()
    }
    assert len(good) == len(OPERATIONS)
    assert [name for name, count in good.items() if not count] == []
