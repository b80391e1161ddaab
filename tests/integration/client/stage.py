"""A running server that tests call from outside, and what they do behind it."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from click.testing import CliRunner, Result

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.cli.main import main
from queue_operator.client import QueueClient
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.running import LogLine, LogReport
from queue_operator.domain.states import Event
from queue_operator.queue.service import QueueService

T = TypeVar("T")
TOKEN = "a-token-for-tests"
SMALL = "small"
"""A namespace in which two jobs may wait."""


@dataclass(frozen=True)
class Stage:
    """Everything happens in `namespace`, which no other test uses. The server has a thread and
    a loop of its own, so that blocking clients reach it.
    """

    url: str
    loop: asyncio.AbstractEventLoop
    queue: QueueService
    backend: PostgresBackend
    namespace: str

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def client(self) -> QueueClient:
        return QueueClient(self.url, TOKEN)

    def claim(self) -> Job:
        """Makes the next job RUNNING, as a worker would."""
        (job,) = self.run(self.backend.dequeue_jobs("worker", (), 1, namespace=self.namespace))
        return job

    def settle(self, job: Job, event: Event, **fields: Any) -> None:
        """Ends the running attempt of `job`."""
        outcome = Outcome(job.id, event, self.namespace, **fields)
        (answer,) = self.run(self.backend.settle([outcome]))
        assert answer.error is None, answer.error

    def log(self, message: str, **fields: Any) -> str:
        """Runs the next job and logs a line."""
        run = self.begin()
        self.say(run, 1, message, **fields)
        return run.job_id

    def begin(self) -> Assignment:
        """Begins an attempt of the next job."""
        demand = Demand(assignee_id="w", limit=1, namespace=self.namespace)
        [run] = self.run(self.backend.claim([demand], lease_ttl_s=600.0))
        return run

    def say(self, run: Assignment, first: int, *messages: str, **fields: Any) -> None:
        """Logs lines of an attempt, the first of which has that number."""
        at, told = datetime(2026, 1, 1, 12, tzinfo=UTC), json.dumps(fields)
        lines = tuple(
            LogLine(number=number, at=at, level="INFO", message=message, fields=told)
            for number, message in enumerate(messages, first)
        )
        report = LogReport(
            job_id=run.job_id, token=run.token, namespace=self.namespace, lines=lines
        )
        self.run(self.backend.append_logs([report]))

    def complete(self, output: Any = None) -> str:
        """Runs the next job to its end."""
        job = self.claim()
        raw = json.dumps(output).encode()
        self.settle(job, Event.COMPLETE, result=raw, result_content_type="application/json")
        return job.id

    def fail(
        self,
        code: str = "BROKEN",
        category: ErrorCategory = ErrorCategory.PERMANENT,
        message: str = "it broke",
    ) -> str:
        """Fails the next job for good."""
        job = self.claim()
        self.settle(job, Event.EXHAUST, error=ErrorInfo(message, category, code, "trace"))
        return job.id

    def type(self, *arguments: str, stdin: str | None = None, **environment: str) -> Result:
        """What `queue-operator` does with these arguments."""
        known = {
            "QUEUE_OPERATOR_URL": self.url,
            "QUEUE_OPERATOR_TOKEN": TOKEN,
            "QUEUE_OPERATOR_NAMESPACE": self.namespace,
            **environment,
        }
        return CliRunner(env=known).invoke(main, arguments, input=stdin, catch_exceptions=False)

    def json(self, *arguments: str, stdin: str | None = None, exit_code: int = 0) -> Any:
        """The document that a command prints with `--output json`."""
        done = self.type(*arguments, "--output", "json", stdin=stdin)
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout)
