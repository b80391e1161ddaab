"""What the server's own log lines of a session are about."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Job
from queue_operator.observing.lines import JsonFormatter
from queue_operator.queue.service import QueueService
from queue_operator.wire.v1 import worker_pb2 as pb


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the logger of sessions writes, as a server does that writes JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter("server"))
    logger = logging.getLogger("queue_operator.rpc.session")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield stream
    logger.setLevel(before)
    logger.removeHandler(handler)


async def test_a_refused_outcome_is_told_with_its_job_and_its_worker(
    queue: QueueService,
    connect: Callable[..., Any],
    new_jobs: Callable[..., list[Job]],
    namespace: str,
    written: io.StringIO,
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    job = (await worker.assignments(1))[0]
    await queue.stop_job(job.job_id, "", namespace=namespace)
    late = pb.Outcome(job_id=job.job_id, token=job.token, kind=pb.OUTCOME_KIND_COMPLETE)
    assert (await worker.settle(late))[0].error_code == InvalidTransition.code
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    (line,) = (line for line in lines if "is refused" in line["message"])
    assert (line["namespace"], line["job_id"]) == (namespace, job.job_id)
    assert (line["worker"], line["process"]) == ("w", "server")
