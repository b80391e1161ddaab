"""What pytest gets from `queue-operator[harness]`: the fixture `worker_harness`.

    def test_greets(worker_harness) -> None:
        harness = worker_harness(worker)
        job_id = harness.submit("hello", {"name": "Ada"})
        harness.run_until_idle()
        assert harness.result(job_id) == {"greeting": "Hello, Ada!"}

It needs no configuration. What is given after the worker goes to `WorkerHarness`;
`check_finished=True` makes the test fail if it leaves a job that has not ended.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from queue_operator.harness.harness import WorkerHarness
    from queue_operator.worker.worker import Worker


class MakeHarness(Protocol):
    """The type of the fixture `worker_harness`."""

    def __call__(
        self, worker: "Worker", *, check_finished: bool = False, **options: Any
    ) -> "WorkerHarness": ...


@pytest.fixture
def worker_harness() -> Iterator[MakeHarness]:
    """Runs workers on a queue in memory; each is stopped when the test ends."""
    # Imported late: every pytest run of the environment loads this file.
    from queue_operator.harness.harness import WorkerHarness

    checked: list[WorkerHarness] = []
    with ExitStack() as stack:

        def make(
            worker: "Worker", *, check_finished: bool = False, **options: Any
        ) -> "WorkerHarness":
            harness = stack.enter_context(WorkerHarness(worker, **options))
            if check_finished:
                checked.append(harness)
            return harness

        yield make
        left = [job for harness in checked for job in harness.unfinished()]
    if left:
        jobs = ", ".join(f"{job.id} ({job.type}) is {job.state}" for job in left)
        pytest.fail(f"the test left jobs that have not ended: {jobs}", pytrace=False)
