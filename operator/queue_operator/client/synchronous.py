"""The blocking client."""

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

import httpx

from queue_operator.client import protocol
from queue_operator.client.credentials import Token, authorization
from queue_operator.client.models import (
    BatchResult,
    CancellationResult,
    JobStatus,
    QueueStats,
    Submission,
    SubmissionResult,
)
from queue_operator.client.protocol import Call
from queue_operator.client.retrying import RetryPolicy


class QueueClient:
    """Submits and watches jobs over REST.

    Every method takes the `namespace` it is for, by default the caller's own, and raises
    the error of `queue_operator.domain.errors` that the server's answer stands for.
    A server that does not answer, or says that it cannot now, is asked again as `retry`
    says, then Unavailable is raised; a submission is stored once however often it is sent.
    """

    def __init__(
        self,
        url: str,
        token: Token = None,
        *,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._http = httpx.Client(base_url=protocol.base_url(url), timeout=timeout_s)
        self._token = token
        self._retry = retry or RetryPolicy()
        self._sleep = sleep

    def submit(self, submission: Submission, *, namespace: str | None = None) -> SubmissionResult:
        """Raises DuplicateJob when the submission's own id is taken."""
        call = protocol.submit(submission, namespace)
        response, tries = self._send(call)
        return protocol.submit_answer(call, response, retried=tries > 1)

    def submit_batch(
        self,
        submissions: Iterable[Submission],
        *,
        atomic: bool = True,
        namespace: str | None = None,
    ) -> BatchResult:
        """All or none; unless `atomic`, those that can be, the rest REJECTED with an error."""
        call = protocol.submit_batch(submissions, atomic, namespace)
        response, tries = self._send(call)
        return protocol.batch_answer(call, response, retried=tries > 1)

    def get(
        self, job_id: str, *, include_result: bool = False, namespace: str | None = None
    ) -> JobStatus:
        """Raises JobNotFound."""
        call = protocol.get(job_id, include_result, namespace)
        response, _ = self._send(call)
        return protocol.answer(call, response, JobStatus)

    def cancel(
        self,
        job_id: str,
        *,
        reason: str = "",
        force: bool = False,
        namespace: str | None = None,
    ) -> CancellationResult:
        """Raises JobNotFound; a job that has ended already is an answer, not an error."""
        call = protocol.cancel(job_id, reason, force, namespace)
        response, _ = self._send(call)
        return protocol.answer(call, response, CancellationResult)

    def stats(self, *, tags: Sequence[str] = (), namespace: str | None = None) -> QueueStats:
        """Counts the jobs that carry all `tags` (`key=value`)."""
        call = protocol.stats(tags, namespace)
        response, _ = self._send(call)
        return protocol.answer(call, response, QueueStats)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, call: Call) -> tuple[httpx.Response, int]:
        """The last answer, and after how many tries it came."""
        tries = 0
        while True:
            tries += 1
            response, failure = self._try(call)
            if not self._retry.again(tries, response):
                break
            self._sleep(self._retry.pause_s(tries, response))
        if response is None:
            raise protocol.unreachable(failure) from failure
        return response, tries

    def _try(self, call: Call) -> tuple[httpx.Response | None, httpx.TransportError | None]:
        try:
            response = self._http.request(
                call.method,
                call.path,
                params=call.params,
                json=call.body,
                headers=authorization(self._token),
            )
        except httpx.TransportError as error:
            return None, error
        return response, None
