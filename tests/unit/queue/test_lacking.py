"""Whoever waits for a worker is told what keeps the connected ones."""

import pytest

from queue_operator.backends.worker_sessions import WorkerSession
from queue_operator.domain.job import Job
from queue_operator.queue.lacking import why_nobody_takes

JOB = Job(id="a", namespace="shop", type="invoice", tags=frozenset({"region=eu"}))
BARE = Job(id="b", namespace="shop", type="invoice")


def worker(
    types: str = "invoice", tags: str = "", *, draining: bool = False, namespace: str = "shop"
) -> WorkerSession:
    return WorkerSession(
        session_id=f"{types}{tags}",
        namespace=namespace,
        worker_name="w",
        types=frozenset(types.split()),
        tags=frozenset(tags.split()),
        capacity=1,
        draining=draining,
    )


@pytest.mark.parametrize(
    ("job", "sessions", "told"),
    [
        (JOB, [], "no worker is connected in namespace shop"),
        (JOB, [worker(namespace="other")], "no worker is connected in namespace shop"),
        (
            JOB,
            [worker("mail invoices")],
            "no worker handles invoice: 1 worker is connected, for invoices, mail; "
            "did you mean invoices?",
        ),
        (
            JOB,
            [worker("e d"), worker("c b a")],
            "no worker handles invoice: 2 workers are connected, for a, b, c and 2 more",
        ),
        (
            BARE,
            [worker(tags="pool=shop"), worker(tags="pool=shop"), worker("mail")],
            "2 workers handle invoice, but demand pool=shop, which the job lacks (it has no tags)",
        ),
        (
            JOB,
            [worker(tags="region=eu region=us zone=b")],
            "1 worker handles invoice, but demands region=us,zone=b, which the job lacks "
            "(it carries region=eu)",
        ),
        (
            JOB,
            [worker("", "x"), worker(tags="x"), worker(tags="y"), worker("mail", "z")],
            "3 workers handle invoice, but each demands tags that the job lacks "
            "(it carries region=eu): x (2), y (1)",
        ),
        (
            JOB,
            [worker(tags="region=eu", draining=True), worker(tags="pool=shop")],
            "1 worker would take the job, but drains",
        ),
        (
            JOB,
            [worker(draining=True), worker("", draining=True)],
            "2 workers would take the job, but drain",
        ),
    ],
)
def test_what_keeps_the_workers(job: Job, sessions: list[WorkerSession], told: str) -> None:
    assert why_nobody_takes(job, sessions) == told
