"""The guide's example prints what the guide says, and its tables are complete."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.programs import finish, started

from queue_operator.auth.protocol import QUEUE_JOBS, QUEUE_JOBS_STATUS, QUEUE_WORKERS
from queue_operator.domain import errors
from queue_operator.rpc.queue_calls import METHODS
from queue_operator.wire.status import status_code

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "grpc.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return found[1]


async def test_the_example_prints_what_the_guide_says(plane: Any) -> None:
    async with started(
        sys.executable, "-W", "error", "-c", block("python"),
        PYTHONPATH=os.pathsep.join(sys.path),
        QUEUE=f"127.0.0.1:{plane.port}",
        QUEUE_TOKEN=plane.token,
    ) as process, asyncio.timeout(30):  # fmt: skip
        assert await finish(process) == block("text")


@pytest.mark.parametrize("name", sorted({*METHODS} - {"ReturnJobs"}))
def test_the_guide_tells_the_right_that_a_call_needs(name: str) -> None:
    row = next(row for row in GUIDE.splitlines() if row.startswith("|") and f"`{name}`" in row)
    right = METHODS[name].right
    assert f"`{right.verb}`" in row
    assert f"`{right.resource}`" in row
    assert {QUEUE_JOBS, QUEUE_JOBS_STATUS, QUEUE_WORKERS} >= {right.resource}


def test_the_guide_names_the_status_of_every_error() -> None:
    for error in (
        errors.InvalidArgument("f", "r"),
        errors.PayloadTooLarge("f", 2, 1),
        errors.DuplicateJob(("j",)),
        errors.KeyConflict("k", "j"),
        errors.JobNotFound("j", "n"),
        errors.PositionExpired(),
        errors.InvalidTransition("j", "s", "e"),
        errors.StaleLease("j"),
        errors.Unauthenticated(""),
        errors.Forbidden(""),
        errors.QuotaExceeded("l", 1, 1, 1.0),
        errors.Unavailable(""),
        errors.QueueError(""),
    ):
        named = f"`{type(error).__name__}`"
        row = next(row for row in GUIDE.splitlines() if row.startswith("|") and named in row)
        assert status_code(error).name in row
