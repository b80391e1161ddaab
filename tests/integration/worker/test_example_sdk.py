"""examples/02-worker-sdk with real worker processes, a real server and a real PostgreSQL."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.worker.conftest import Operator, StartWorker

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.settings import AuthMode, AuthSettings, RestSettings, Settings

EXAMPLE = Path(__file__).parents[3] / "examples" / "02-worker-sdk"
FOR_EVER_S = 60.0


def statement(*orders: int, slow_s: float = 0.0) -> bytes:
    return json.dumps({"customer": "Ada", "orders": orders, "slow_s": slow_s}).encode()


def result(job: Job) -> dict[str, Any]:
    assert job.result is not None
    given: dict[str, Any] = json.loads(job.result)
    return given


async def test_a_statement_adds_up_and_makes_its_receipts(
    operator: Operator, start_worker: StartWorker
) -> None:
    start_worker(folder=EXAMPLE)
    job_id = await operator.submit("statement", statement(1, 2, 13), correlation_id="trip-7")
    total = result(await operator.reached(job_id, JobState.COMPLETED))
    assert (total["cents"], total["resumed_at"]) == (1600, 0)
    for order, child_id in zip((1, 2, 13), total["receipts"], strict=True):
        child = await operator.reached(child_id, JobState.COMPLETED)
        assert result(child) == {"text": f"Order {order} of Ada, with thanks"}
        assert child.correlation_id == "trip-7"
        # The printer is out of paper once, at order 13.
        assert child.attempt == (2 if order == 13 else 1)


async def test_a_killed_worker_costs_one_order_and_no_receipt_comes_twice(
    operator: Operator, start_worker: StartWorker
) -> None:
    first = start_worker("first", folder=EXAMPLE)
    job_id = await operator.submit("statement", statement(1, 2, 3))
    done = result(await operator.reached(job_id, JobState.COMPLETED))
    slow = await operator.submit("statement", statement(4, 5, 6, slow_s=0.5))
    await operator.progressed(slow, "order 6")
    first.kill()
    start_worker("second", folder=EXAMPLE)
    total = result(await operator.reached(slow, JobState.COMPLETED))
    assert (total["cents"], total["resumed_at"]) == (1500, 2)
    assert len({*total["receipts"], *done["receipts"]}) == 6
    stats = await operator.queue.get_job_stats([], namespace=operator.namespace)
    # Two statements and six receipts, whatever was tried twice.
    assert stats.total_jobs == 8


async def test_a_cancel_stops_between_two_orders(
    operator: Operator, start_worker: StartWorker
) -> None:
    start_worker(folder=EXAMPLE)
    job_id = await operator.submit("statement", statement(1, 2, slow_s=FOR_EVER_S))
    await operator.progressed(job_id, "order 1")
    await operator.queue.cancel_jobs([], [job_id], namespace=operator.namespace)
    await operator.reached(job_id, JobState.STOPPED)


async def test_an_order_that_does_not_exist_fails_for_good(
    operator: Operator, start_worker: StartWorker
) -> None:
    start_worker(folder=EXAMPLE)
    job_id = await operator.submit("statement", statement(1, 404))
    job = await operator.reached(job_id, JobState.DEAD_LETTER)
    assert job.attempt == 1
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("NO_SUCH_ORDER", "there is no order 404")


@pytest.fixture
async def rest(operator: Operator) -> AsyncIterator[str]:
    """The address of a REST door to the same queue."""
    settings = Settings(
        auth=AuthSettings(mode=AuthMode.NONE), rest=RestSettings(host="127.0.0.1", port=0)
    )
    door = RestServer(create_app(operator.queue, *build(settings.auth), settings), settings.rest)
    await door.start()
    yield f"http://127.0.0.1:{door.port}"
    await door.stop()


async def test_what_the_readme_says_to_type_shows_the_result(
    start_worker: StartWorker, rest: str
) -> None:
    start_worker(folder=EXAMPLE, NAMESPACE="default")
    told = await submit(rest, "Ada", "1", "2", "3")
    assert told[0].startswith("job ")
    state, _, output = told[-1].partition(" ")
    assert (state, json.loads(output)["cents"]) == ("COMPLETED", 600)
    assert (await submit(rest, "Ada", "1", "404"))[-1] == "FAILED there is no order 404"


async def submit(server: str, *arguments: str) -> list[str]:
    """What `submit.py` prints."""
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "submit.py", *arguments, "--server", server),
        cwd=EXAMPLE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await ran.communicate()
    return said.decode().splitlines()


def test_its_own_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_handlers.py"]
    ran = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout
