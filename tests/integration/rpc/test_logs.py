"""Log lines over the wire, message by message."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.waiting import until

from queue_operator.backends.protocol import JobLogs
from queue_operator.domain.job import Job
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]


def line(job: pb.Assignment, number: int, **fields: Any) -> pb.LogLine:
    made = pb.LogLine(job_id=job.job_id, token=job.token, number=number, level="INFO", **fields)
    made.at.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    return made


@proves("queue-api.WorkerPlane.rule.6")
async def test_lines_are_stored_also_those_that_come_after_the_outcome(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(2))
    book = queue.backend
    assert isinstance(book, JobLogs)
    job, other = await worker.assignments(2)
    await worker.say(
        logs=pb.LogBatch(
            lines=[
                line(job, 1, message="one", fields='{"a":1}'),
                line(other, 1, message="other"),
                line(job, 2, message="two"),
                pb.LogLine(job_id="", token="x", number=1),
                pb.LogLine(job_id=job.job_id, token="no token of ours", number=1),
            ]
        )
    )
    done = pb.Outcome(job_id=job.job_id, token=job.token, kind=pb.OUTCOME_KIND_COMPLETE)
    await worker.settle(done)
    await worker.say(logs=pb.LogBatch(lines=[line(job, 3, message="late")]))

    async def all_are_there() -> bool:
        logs = await book.job_log(job.job_id, namespace=namespace)
        return [one.message for log in logs for one in log.lines] == ["one", "two", "late"]

    await until(all_are_there)
    [log] = await book.job_log(job.job_id, namespace=namespace)
    assert (log.number, log.dropped, log.lines[0].fields) == (1, 0, '{"a":1}')
    assert log.lines[0].at == datetime(2026, 1, 1, tzinfo=UTC)
    [log] = await book.job_log(other.job_id, namespace=namespace)
    assert [one.message for one in log.lines] == ["other"]
