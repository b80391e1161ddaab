"""Whatever schemathesis makes of the document, the server answers as the document says."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from tests.integration.api.door import TOKEN, Door

from queue_operator.api.routes import OPERATIONS
from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

EXAMPLES: Final = 100
FULL: Final = os.environ.get("QUEUE_OPERATOR_TEST_FULL") == "1"


async def ended_jobs(door: Door) -> None:
    """The jobs that the examples of the document name, each with a failure."""
    names = set()
    for methods in (await door.http.get("/v1/openapi.json")).json()["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "job_id":
                    names.add(parameter["example"])
    for name in sorted(names):
        body = {"job_id": name, "type": "example", "payload": 1}
        answer = await door.http.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
    error = ErrorInfo("boom", ErrorCategory.PERMANENT, "E1")
    for job in await door.backend.dequeue_jobs("worker", (), len(names)):
        outcome = Outcome(job.id, Event.EXHAUST, DEFAULT_NAMESPACE, error=error)
        [settled] = await door.backend.settle([outcome])
        assert settled.error is None


async def run(door: Door, folder: Path) -> tuple[int, str, dict[str, Any]]:
    """The exit code, what is told, and the report of all checks on all operations."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("schemathesis"),
        "run",
        f"{door.url}/v1/openapi.json",
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
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    [report] = folder.glob("json-*.json")
    return process.returncode or 0, said.decode(), json.loads(report.read_text())


@proves("external-api.Robustness.expect.2")
async def test_the_server_does_what_the_document_says(door: Door, tmp_path: Path) -> None:
    await ended_jobs(door)
    code, said, report = await run(door, tmp_path)
    assert code == 0, said
    assert report["operations"]["tested"] == len(OPERATIONS)
    assert report["operations"]["errored"] == report["operations"]["skipped"] == 0
    good = {
        name: sum(phase["accepted"] for phase in phases.values())
        for name, phases in report["valid_rates"].items()
    }
    assert len(good) == len(OPERATIONS)
    assert [name for name, count in good.items() if not count] == []
