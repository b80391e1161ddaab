"""Whatever schemathesis makes of the document, the server answers as the document says."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
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
from queue_operator.backends.webhooks import MessageSearch
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
async def url(new_database: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
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
    monkeypatch.setenv(hooks.MESSAGE, await a_message(backend))
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
    in_path = [one for one in parameters if one["in"] == "path"]
    names = {one["example"] for one in in_path if one["name"] == "job_id"}
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


async def a_message(backend: PostgresBackend) -> str:
    """The id of one."""
    there = hooks.ATTIC
    url = "https://receiver.example/jobs"
    await backend.enqueue_job(Job(id="told", type="told", namespace=there, callback_url=url))
    await backend.cancel_jobs((), ["told"], namespace=there)
    [message] = (await backend.webhooks.search(MessageSearch(namespace=there))).messages
    return message.id


@dataclass
class Told:
    """What a run said, its report, and by operation the cases it made and those answered 2xx."""

    code: int
    said: str
    report: dict[str, Any]
    made: Counter[str]
    good: Counter[str]


async def run(url: str, folder: Path, *options: str) -> Told:
    """All checks, on all operations unless the options say otherwise."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("schemathesis"),
        "run",
        f"{url}/v1/openapi.json",
        f"--header=Authorization: Bearer {TOKEN}",
        "--checks=all",
        # Streams do not end.
        "--exclude-path-regex=/events$",
        f"--max-examples={EXAMPLES * 10 if FULL else EXAMPLES}",
        "--workers=1",
        "--continue-on-failure",
        "--no-color",
        "--report=json,ndjson",
        f"--report-dir={folder}",
        *([] if FULL else ["--generation-deterministic"]),
        *options,
        cwd=folder.parent,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "tests.integration.api.hooks",
            "PYTHONPATH": str(ROOT),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    made, good = counts_in(folder)
    return Told(process.returncode or 0, said.decode(), report_in(folder), made, good)


def report_in(folder: Path) -> dict[str, Any]:
    [file] = folder.glob("json-*.json")
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def counts_in(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Of the list of all cases, which is large and does not stay. A case that a check made out of
    another one, and those of whole sequences, are not counted.
    """
    [file] = folder.glob("ndjson-*.ndjson")
    made, good = Counter[str](), Counter[str]()
    with file.open() as lines:
        for line in lines:
            scenario = json.loads(line).get("ScenarioFinished")
            if scenario is None or scenario["phase"] == "stateful":
                continue
            recorder = scenario["recorder"]
            own = [i for i, case in recorder.get("cases", {}).items() if "parent_id" not in case]
            made[recorder["label"]] += len(own)
            good[recorder["label"]] += sum(is_good(recorder["interactions"].get(i)) for i in own)
    file.unlink()
    return made, good


def is_good(interaction: dict[str, Any] | None) -> bool:
    response = interaction and interaction.get("response")
    return response is not None and response["status_code"] // 100 == 2


@proves("external-api.Robustness.expect.2")
async def test_the_server_does_what_the_document_says(url: str, tmp_path: Path) -> None:
    told = await run(url, tmp_path / "all")
    assert told.code == 0, told.said
    counted = told.report["operations"]
    tried = [one for one in OPERATIONS if not one.streams]
    assert (counted["tested"], counted["errored"], counted["skipped"]) == (len(tried), 0, 0)
    # Where ids come from the jobs that others have made, those that are deleted are used up soon.
    for number, name in enumerate(few(told.made)):
        more = await run(url, tmp_path / f"more-{number}", f"--include-name={name}")
        assert more.code == 0, more.said
        told.made.update(more.made)
        told.good.update(more.good)
    names = {f"{one.method} {one.path}" for one in tried}
    assert set(told.made) == names
    assert few(told.made) == []
    assert {name for name in names if not told.good[name]} == set()


def few(made: Counter[str]) -> list[str]:
    """The operations that were tried less often than promised."""
    return [name for name, count in made.items() if count < EXAMPLES]
