"""Text that no request holds is refused by the name of its field, before anything is sent."""

from collections.abc import Callable
from typing import Any

import pytest

from queue_operator.client import QueueClient, Submission
from queue_operator.domain.errors import InvalidArgument

HALF = "half \ud800"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda q: q.get(HALF), "job_id"),
        (lambda q: q.explain("a", namespace=HALF), "namespace"),
        (lambda q: q.retry(HALF), "job_id"),
        (lambda q: q.cancel("a", reason=HALF), "reason"),
        (lambda q: q.cancel_jobs(["a", HALF]), "job_ids[1]"),
        (lambda q: q.pause("t", reason=HALF), "reason"),
        (lambda q: q.resume(HALF), "type"),
        (lambda q: q.stats(tags=["a", HALF]), "tag"),
        (lambda q: q.submit(Submission(type="t", payload={"a": ["b", HALF]})), "payload.a[1]"),
        (lambda q: q.submit(Submission(type="t", payload={"a": {HALF: 1}})), "payload.a"),
        (
            lambda q: q.submit_batch([Submission(type="t", payload=one) for one in ("a", HALF)]),
            "jobs[1].payload",
        ),
    ],
)
def test_lone_surrogates_are_named(call: Callable[[QueueClient], object], field: str) -> None:
    with (
        QueueClient("http://127.0.0.1:1") as queue,
        pytest.raises(InvalidArgument, match="surrogates") as refused,
    ):
        call(queue)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "field", ["type", "job_id", "correlation_id", "idempotency_key", "callback_url", "tags.a"]
)
def test_so_are_those_of_a_submission(field: str) -> None:
    name, _, key = field.partition(".")
    given: dict[str, Any] = {"type": "t", "payload": None, name: {key: HALF} if key else HALF}
    with (
        QueueClient("http://127.0.0.1:1") as queue,
        pytest.raises(InvalidArgument, match="surrogates") as refused,
    ):
        queue.submit(Submission(**given))
    assert refused.value.field == field
