"""A whole worker on a queue in memory, in one process, with a clock that the test moves.

    def test_it_is_tried_again() -> None:
        with WorkerHarness(worker) as harness:
            job_id = harness.submit("fetch", {"url": "https://example.org"}, max_attempts=3)
            harness.run_until_idle()
            assert harness.job(job_id).attempt == 1
            harness.advance("PT10M")
            assert harness.job(job_id).state is JobState.COMPLETED

Everything but the network is what runs in a cluster: the queue, the worker plane's session, the
worker's session, middleware, dependencies, the lifespan. Nothing waits in real time: delays,
retries, timeouts, leases and `asyncio.sleep` in handlers go by the harness's clock.

Needs the extra `queue-operator[harness]` (pydantic-settings, which the server's settings need,
and pytest); no database and no server. With it pytest has the fixture `worker_harness`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue_operator.client.requests import Backoff, Submission
    from queue_operator.domain.job import Job
    from queue_operator.domain.states import JobState
    from queue_operator.harness.harness import JobFailed, WorkerHarness
    from queue_operator.harness.loop import StillBusy

__all__ = [
    "Backoff",
    "Job",
    "JobFailed",
    "JobState",
    "StillBusy",
    "Submission",
    "WorkerHarness",
]

_HOMES = {
    "Backoff": "queue_operator.client.requests",
    "Job": "queue_operator.domain.job",
    "JobFailed": "queue_operator.harness.harness",
    "JobState": "queue_operator.domain.states",
    "StillBusy": "queue_operator.harness.loop",
    "Submission": "queue_operator.client.requests",
    "WorkerHarness": "queue_operator.harness.harness",
}


def __getattr__(name: str) -> object:
    """Late, as every pytest run of an environment loads the plugin in this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
