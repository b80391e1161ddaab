"""Records what a client of the REST API was told."""

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

from queue_operator.testing.history.calls import CANCEL, SUBMIT, Called, stand_before
from queue_operator.testing.history.records import Log


class Client(Protocol):
    """`submit` takes a submission that has its own `job_id`."""

    def submit(self, submission: Any, /) -> Awaitable[Any]: ...

    def cancel(self, job_id: str, /, *, force: bool) -> Awaitable[Any]: ...


C = TypeVar("C", bound=Client)


def record_client(client: C, log: Log) -> C:
    """Submissions and cancels of single jobs, from now on."""
    stand_before(client, _ClientRecorder(client, log), "submit", "cancel")
    return client


class _ClientRecorder:
    def __init__(self, client: Client, log: Log) -> None:
        self._submit, self._cancel = client.submit, client.cancel
        self._log = log

    async def submit(self, submission: Any, **options: Any) -> Any:
        with Called(self._log, SUBMIT, [submission.job_id]) as call:
            answer = await self._submit(submission, **options)
            call.acknowledge([answer.job_id])
        return answer

    async def cancel(self, job_id: str, **options: Any) -> Any:
        with Called(self._log, CANCEL, [job_id]) as call:
            answer = await self._cancel(job_id, **options)
            call.acknowledge([job_id], str(answer.status))
        return answer
